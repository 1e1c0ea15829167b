"""Plain data to dataclasses: nothing misspelt or of the wrong type passes."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import reading
from scaling.meshes.errors import InputError
from scaling.meshes.reading import LARGEST, parse_json, parse_toml, read, read_text


@dataclass(frozen=True)
class Wheel:
    radius: float
    spokes: int = 32


@dataclass(frozen=True)
class Bicycle:
    name: str
    wheels: tuple[Wheel, ...] = ()
    gears: tuple[int, int] = (1, 9)
    brake: Literal["disc", "rim"] = "disc"
    light: bool = False
    owner: str | None = None
    spare: Wheel | None = None
    prices: dict[str, float] = field(default_factory=dict)
    notes: Any = None
    seat: float | str = "middle"

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("name is empty; give one")


def message(data: object, cls: type = Bicycle) -> str:
    with pytest.raises(InputError) as caught:
        read(cls, data, "bike.json")
    return str(caught.value)


def test_nested_data_becomes_nested_dataclasses() -> None:
    data = {
        "name": "red",
        "wheels": [{"radius": 0.35}, {"radius": 1, "spokes": 28.0}],
        "gears": [2, 7],
        "spare": {"radius": 0.3},
        "prices": {"bell": 3},
        "notes": [1, {"any": "thing"}],
        "seat": "low",
    }
    bicycle = read(Bicycle, data, "bike.json")
    assert bicycle.wheels == (Wheel(0.35), Wheel(1.0, 28))
    assert bicycle.spare == Wheel(0.3) and bicycle.prices == {"bell": 3.0}
    assert (bicycle.gears, bicycle.notes, bicycle.seat) == ((2, 7), [1, {"any": "thing"}], "low")
    assert isinstance(bicycle.wheels[1].spokes, int)
    assert isinstance(bicycle.wheels[1].radius, float)


counts = st.integers(-LARGEST, LARGEST)
amounts = st.floats(-1e18, 1e18)
shown = st.text(st.characters(exclude_categories=["Cs", "Cc"]))  # no halves of pairs, no controls
wheels = st.builds(Wheel, amounts, counts)
bicycles = st.builds(
    Bicycle,
    name=shown.filter(bool),
    wheels=st.lists(wheels).map(tuple),
    gears=st.tuples(counts, counts),
    brake=st.sampled_from(["disc", "rim"]),
    light=st.booleans(),
    owner=st.none() | shown,
    spare=st.none() | wheels,
    prices=st.dictionaries(st.text(), amounts),
    seat=amounts | shown,
)


@given(bicycles)
def test_what_is_written_is_read_back(bicycle: Bicycle) -> None:
    assert read(Bicycle, asdict(bicycle), "bike.json") == bicycle


def test_a_misspelt_key_names_the_nearest() -> None:
    assert message({"name": "red", "wheel": []}).startswith(
        "bike.json: unknown key 'wheel'; did you mean 'wheels'?"
    )
    nested = message({"name": "red", "wheels": [{"radius": 1}, {"radus": 1}]})
    assert nested.startswith("bike.json: wheels[1]: unknown key 'radus'; did you mean 'radius'?")


def test_all_mistakes_are_reported_together() -> None:
    """A line each; a misspelt key is not also called missing."""
    data = {"nam": "red", "gears": [1], "wheels": [{"radius": "x"}, {}], "prices": {"a": []}}
    assert message(data).split("\n") == [
        f"bike.json: {problem}"
        for problem in (
            "unknown key 'nam'; did you mean 'name'? (known: name, wheels, gears, brake, light, "
            "owner, spare, prices, notes, seat)",
            "gears: expected 2 values, got 1: [1]",
            "wheels[0]: radius: expected float, got 'x'",
            "wheels[1]: missing 'radius'",
            "prices: a: expected float, got []",
        )
    ]


@pytest.mark.parametrize(
    "key, value, words",
    [
        ("name", 3, "name: expected str, got 3"),
        ("spare", {"radius": float("nan")}, "spare: radius: expected float, got nan"),
        (
            "spare",
            {"radius": 1e30},
            "spare: radius: 1e+30 is too large; numbers are read up to 9.2e",
        ),
        ("gears", [1, 10**30], "gears[1]: expected int, got one of 100 bits"),
        ("light", 1, "light: expected bool, got 1"),
        ("gears", [1], "gears: expected 2 values, got 1: [1]"),
        ("gears", 5, "gears: expected a list, got 5"),
        ("gears", "a,b", """gears: expected a list, such as ["a", "b"], got 'a,b'"""),
        ("gears", [1, 2.5], "gears[1]: expected int, got 2.5"),
        ("wheels", [3], "wheels[0]: expected a table of keys, got 3"),
        ("brake", "disk", "brake: 'disk' is not a choice; did you mean 'disc'?"),
        ("spare", "yes", "spare: expected a table of keys, got 'yes'"),
        ("prices", [1], "prices: expected a table of keys, got [1]"),
        ("seat", [], "seat: expected str, got []"),
    ],
)
def test_a_wrong_type_says_where_and_what(key: str, value: object, words: str) -> None:
    assert message({"name": "red", key: value}).startswith(f"bike.json: {words}")


def test_complaints_of_the_dataclass_say_where() -> None:
    assert message({"name": ""}) == "bike.json: name is empty; give one"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.just("name"), inner),
    ),
    st.sampled_from([*Bicycle.__dataclass_fields__]),
)
def test_any_value_is_read_or_refused_in_words(value: object, key: str) -> None:
    for data in (value, {"name": "red", key: value}):
        try:
            assert isinstance(read(Bicycle, data, "bike.json"), Bicycle)
        except InputError as error:
            assert str(error).startswith("bike.json: ")


def test_texts_that_no_file_or_encoding_holds_are_refused(tmp_path, monkeypatch):
    assert parse_json(r'{"name": "\ud83d\ude00"}', "a.json") == {"name": "😀"}
    for text in (r'{"name": "\ud800"}', "[" * 100_000, b'"\xff"', "9" * 5000):
        with pytest.raises(InputError, match="^a.json is not JSON: "):
            parse_json(text, "a.json")
    for text in ("a = " + "[" * 100_000, "a = " + "9" * 5000):
        with pytest.raises(InputError, match="^a.toml is not TOML: "):
            parse_toml(text, "a.toml")
    monkeypatch.setattr(reading, "MOST_TEXT", 4)
    (tmp_path / "long").write_text("12345")
    with pytest.raises(InputError, match="long has more than 4 characters, the most"):
        read_text(tmp_path / "long")
    with pytest.raises(InputError, match="cannot read .*null"):
        read_text(tmp_path / "a\0b")
