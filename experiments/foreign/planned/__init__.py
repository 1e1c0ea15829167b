"""Programs of others whose meshes are planned: each `make(mesh)` is what a user writes."""
