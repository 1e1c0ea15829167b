"""Modules, computations and instructions survive being written and read; other lines are errors."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.parse import UnknownHlo, parse_instruction, parse_module
from scaling.hlo.shapes import Array
from tests.scaling.hlo.texts import module

SHAPES = {
    "f32[]": Array("f32", ()),
    "bf16[2,8]{1,0}": Array("bf16", (2, 8), (1, 0)),
    "(s32[], (f32[4]{0}, token[]))": (
        Array("s32", ()),
        (Array("f32", (4,), (0,)), Array("token", ())),
    ),
}
names = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=12)
keys = st.text(string.ascii_lowercase + "_", min_size=1, max_size=10)
quoted = st.text(max_size=12).map(
    lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
)
plain = st.text(string.ascii_letters + string.digits + "_.%<=>'/", min_size=1, max_size=8)
brackets = st.sampled_from(["{}", "[]", "()"])
# values as deep as {devices=[2,1]<=[2], {"a, b=c"}}
values = st.recursive(
    quoted | plain,
    lambda inner: st.tuples(brackets, st.lists(inner, max_size=4)).map(
        lambda made: made[0][0] + ", ".join(made[1]) + made[0][1]
    ),
    max_leaves=8,
)


@given(
    names, st.sampled_from(sorted(SHAPES)), st.lists(names, max_size=7), st.booleans(),
    st.dictionaries(keys, values, max_size=5),
)  # fmt: skip
def test_an_instruction_is_read_as_it_was_written(name, shape, operands, is_root, attributes):
    marked = [f"/*index={i}*/" * (i == 5) + f"%{x}" for i, x in enumerate(operands)]
    rest = "".join(f", {key}={value}" for key, value in attributes.items())
    root = "ROOT " if is_root else ""
    line = f"  {root}%{name} = {shape} some-op({', '.join(marked)}){rest}"
    read = parse_instruction(line)
    assert (read.name, read.opcode, read.shape) == (name, "some-op", SHAPES[shape])
    assert (read.operand_names, read.is_root, read.line) == (tuple(operands), is_root, line)
    assert {key: read.attribute(key) for key in attributes} == attributes
    assert read.attribute("not_there") is None


def test_only_attributes_outside_brackets_and_strings_count():
    read = parse_instruction(
        '  %x = f32[] custom-call(%y), custom_call_target="a, calls=%no", '
        'frontend_attributes={b="1, channel_id=2", dimensions={3}}, '
        'metadata={op_name="f(x, calls=%z)" source_line=7}, to_apply=%yes'
    )
    assert read.attribute("custom_call_target") == '"a, calls=%no"'
    assert read.attribute("to_apply") == "%yes"
    for name in ("calls", "channel_id", "dimensions", "op_name", "source_line"):
        assert read.attribute(name) is None


def test_groups_over_a_mesh_keep_their_axes():
    line = "  %x = f32[] all-reduce(%y), replica_groups=mesh['a'=2,'b'=4] {'a'}, to_apply=%s"
    assert parse_instruction(line).attribute("replica_groups") == "mesh['a'=2,'b'=4] {'a'}"
    line = "  %x = f32[] all-gather(%y), replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}"
    assert parse_instruction(line).attribute("replica_groups") == "[2,4]<=[4,2]T(1,0)"


def test_called_computations_are_listed_by_name():
    entry = module(
        "p = s32[] parameter(0); a = f32[] constant(1); while = f32[] while(%a), body=%one; "
        "c = f32[] conditional(%p, %a, %a), branch_computations={%one, %two}",
        one="x = f32[] parameter(0)",
        two="x = f32[] parameter(0)",
    ).entry
    names = lambda name, attribute: [c.name for c in entry.instructions[name].called(attribute)]
    assert names("c", "branch_computations") == ["one", "two"]
    assert names("while", "body") == ["one"] and names("while", "calls") == []


@pytest.mark.parametrize(
    ("attributes", "op_name"),
    [
        ('metadata={op_name="jit(f)/while/body" scheduling_name="x"}', "jit(f)/while/body"),
        ('metadata={op_name="a/(b:c)/d, e}" source_line=3}', "a/(b:c)/d, e}"),
        (r'metadata={op_name="quoted \" inside"}', r"quoted \" inside"),
        ('metadata={scheduling_name="x"}', ""),
        ('frontend_attributes={op_name="not this"}', ""),
        ("", ""),
    ],
)
def test_the_op_name_is_that_of_the_metadata(attributes, op_name):
    assert parse_instruction(f"  %x = f32[] add(%a, %b), {attributes}").op_name == op_name


@pytest.mark.parametrize(
    ("attributes", "config"),
    [
        ('backend_config={"a":{"b":["1"]},"c":true}', {"a": {"b": ["1"]}, "c": True}),
        ('calls=%f, backend_config={"text":"}, {"}, other=1', {"text": "}, {"}),
        ('backend_config="opaque"', {}),
        ("backend_config={kernel = 1 : i32}", {}),  # MLIR's attributes, of kernels made by Pallas
        ("", {}),
    ],
)
def test_a_backend_config_that_is_no_json_object_is_empty(attributes, config):
    assert parse_instruction(f"  %x = f32[] add(%a), {attributes}").backend_config == config


@pytest.mark.parametrize("literal", ["{1, 2, 3}", "42", '"a) b"', "{ {1}, {2} }"])
def test_constants_have_no_operands(literal):
    read = parse_instruction(f"  %c = s32[3]{{0}} constant({literal}), metadata={{}}")
    assert (read.opcode, read.operand_names, read.argument) == ("constant", (), literal)


def test_a_parameter_has_a_number():
    assert parse_instruction("  %p = f32[] parameter(12)").parameter_number == 12


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("  garbage", "not an instruction"),
        ("%x = f32[] add(%a)", "not an instruction"),  # not indented
        ("  %x = ", "no shape"),
        ("  %x = f33[2] add(%a)", "unknown element type 'f33'"),
        ("  %x = f32[<=2] add(%a)", "not static"),
        ("  %x = (f32[2], ", "no shape"),
        ("  %x = f32[2]{0}", "no operation"),
        ("  %x = f32[2]{0} ADD(%a)", "no operation"),
        ("  %x = f32[2]{0} add(%a, %b", "unclosed bracket"),
        ("  %x = f32[2]{0} add(a, b)", "operands without names"),
    ],
)
def test_a_line_that_does_not_read_is_an_error_that_quotes_it(line, said):
    with pytest.raises(UnknownHlo, match=said) as error:
        parse_instruction(line)
    assert line.strip() in str(error.value)


MODULE = """HloModule jit_step, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias), \
{1, 2}: (0, {3}, must-alias) }, entry_computation_layout={(f32[2]{0}, s32[])->f32[2]{0}}

FileNames
1 "a.py"

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%body (p.1: (s32[], f32[2])) -> (s32[], f32[2]) {
  %p.1 = (s32[], f32[2]{0}) parameter(0)
  ROOT %copy.1 = (s32[], f32[2]{0}) copy(%p.1)
}, execution_thread="parallel"

ENTRY %main (x: f32[2], y: s32[]) -> f32[2] {
  %y = s32[] parameter(1)
  %x = f32[2]{0} parameter(0), sharding={devices=[2]<=[2]}

  %t = (s32[], f32[2]{0}) tuple(%y, %x)
  %w = (s32[], f32[2]{0}) while(%t), condition=%test, body=%body
  ROOT %add = f32[2]{0} add(%x, %x)
}
"""


def test_a_module_has_its_computations_in_order_of_their_schedule():
    module = parse_module(MODULE)
    assert (module.name, list(module.computations), module.entry.name) == (
        "jit_step",
        ["body", "main"],
        "main",
    )
    assert [i.name for i in module.entry] == ["y", "x", "t", "w", "add"]
    assert module.entry.root.name == "add"
    assert [p.name for p in module.entry.parameters] == ["x", "y"]
    assert module.computations["body"].root.operand_names == ("p.1",)


def test_operands_and_users_are_each_others():
    entry = parse_module(MODULE).entry
    assert [i.name for i in entry.instructions["t"].operands] == ["y", "x"]
    assert [i.name for i in entry.users["x"]] == ["t", "add"]  # once, though it adds it twice
    assert entry.users["add"] == ()


def test_aliases_lead_from_an_output_to_a_parameter():
    assert parse_module(MODULE).aliases == {(0,): (1, ()), (1, 2): (0, (3,))}
    assert parse_module(MODULE.replace("input_output_alias", "other")).aliases == {}


@given(st.lists(st.lists(names, min_size=1, max_size=5, unique=True), min_size=1, max_size=4))
def test_computations_are_read_as_they_were_written(bodies):
    text = "HloModule m, is_scheduled=true\n\n"
    for i, body in enumerate(bodies):
        head = "ENTRY " if i == len(bodies) - 1 else ""
        text += f"{head}%c{i} (p: f32[]) -> f32[] {{\n"
        for j, name in enumerate(body):
            root = "ROOT " if j == len(body) - 1 else ""
            text += f"  {root}%{name} = f32[] op({f'%{body[j - 1]}' if j else ''})\n"
        text += "}\n\n"
    module = parse_module(text)
    assert [[i.name for i in c] for c in module.computations.values()] == bodies
    assert module.entry.name == f"c{len(bodies) - 1}"
    for computation, body in zip(module.computations.values(), bodies, strict=True):
        assert computation.root.name == body[-1]
        assert [i.operand_names for i in computation] == [(), *((name,) for name in body[:-1])]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "(empty)"),
        ("module @jit_step {\n}", "not an HLO module"),
        (MODULE.replace("is_scheduled=true, ", ""), "no schedule"),
        (MODULE.replace("ENTRY ", ""), "no ENTRY"),
        (MODULE.removesuffix("}\n"), "cut off"),
        (MODULE[: MODULE.index("ENTRY")] + "  %lost = f32[] add()\n", "outside any computation"),
        (MODULE.replace("%body (p.1: (s32[], f32[2])) -> (s32[], f32[2]) {", "body:"), "outside"),
        (MODULE.replace("ROOT %add", "%add"), "not one ROOT"),
        (MODULE.replace("add(%x, %x)", "add(%x, %gone)"), "no %gone"),
        (MODULE.replace("  %t = ", "  %t is "), "not an instruction"),
    ],
)
def test_a_text_that_is_no_whole_scheduled_module_is_an_error(text, said):
    with pytest.raises(UnknownHlo) as error:
        parse_module(text)
    assert said in str(error.value)
