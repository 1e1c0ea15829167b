"""The pages: a server on this machine, the answers they ask for, and the files of the pages."""
