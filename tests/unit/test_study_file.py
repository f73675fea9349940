"""Studies in TOML: what is accepted, and where each mistake is shown."""

import re

import pytest

from paceline.study import Config
from paceline.study_file import load_study
from paceline.toml_positions import Span, locate


@pytest.fixture
def study_file(tmp_path):
    (tmp_path / "train.py").touch()
    path = tmp_path / "study.toml"

    def write(text: str):
        path.write_text(text)
        return path

    return write


def places(error: BaseException) -> list[tuple[int, int, str]]:
    """Line, column and text of every mistake in the message."""
    found = re.findall(r"study\.toml:(\d+):(\d+): (.*)", str(error))
    return [(int(line), int(column), text) for line, column, text in found]


def test_a_whole_study(study_file, tmp_path):
    study = load_study(
        study_file(
            """
            program = "train.py"
            arguments = ["--dim", 1024]
            worlds = [1, 2]
            placement = ["plain", "tuned"]
            rounds = 4
            budget = "10m"
            steps = 20
            timeout = 60
            to-end = true

            [sweep]
            accum-steps = [4, 8]
            """
        )
    )
    assert (study.name, study.rounds, study.until, study.budget_s) == ("study", 4, None, 600.0)
    assert (study.options.steps, study.options.timeout_s, study.options.to_end) == (20, 60.0, True)
    program = str(tmp_path / "train.py")
    assert len(study.configs) == 8
    assert study.configs[0] == Config(program, ("--dim", "1024", "--accum-steps", "4"), 1, "plain")


def test_single_values_need_no_list_and_until_takes_a_percentage(study_file):
    study = load_study(
        study_file('program = "train.py"\nworlds = 2\nplacement = "plain"\nuntil = "3%"\nsweep.lr = 0.1')
    )
    assert [(c.world, c.placement, c.arguments) for c in study.configs] == [(2, "plain", ("--lr", "0.1"))]
    assert (study.until, study.budget_s) == (0.03, 600.0)


def test_every_mistake_at_once_each_at_its_place(study_file):
    path = study_file(
        """program = "trian.py"
stesp = 30
to_end = true
warmup = "5"
worlds = [1,
  0,  # a comment with ] and "
  2]
placement = ["tuned", "tunde"]
until = 3
rounds = 2
virtual-memory = "8GiB"
nproc = 2
sweep = { accum-steps = [4, true], 'lr' = [] }
"""
    )
    with pytest.raises(ValueError, match="has 12 mistakes") as caught:
        load_study(path)
    expected = [
        (1, 11, "did you mean"),
        (2, 1, "unknown key 'stesp'; did you mean 'steps'?"),
        (3, 1, "unknown key 'to_end'; did you mean 'to-end'?"),
        (4, 10, "write 5"),
        (6, 3, "the least is 1"),
        (8, 23, "did you mean 'tuned'?"),
        (9, 9, "try 3%"),
        (10, 1, "exclude each other"),
        (11, 1, "needs virtual N"),
        (12, 1, "did you mean 'worlds'?"),
        (13, 29, "found true"),
        (13, 43, "at least one value"),
    ]
    found = places(caught.value)
    assert [(line, column) for line, column, _ in found] == [(line, column) for line, column, _ in expected]
    for (_, _, text), (_, _, said) in zip(found, expected, strict=True):
        assert said in text
    assert "    2 | stesp = 30\n      | ^^^^^" in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        "timeout = 0",
        "timeout = nan",
        "timeout = inf",
        "budget = -5",
        "budget = nan",
        "worlds = []",
        "placement = []",
    ],
)
def test_a_value_that_cannot_work_is_shown_beside_other_mistakes(study_file, value):
    with pytest.raises(ValueError, match="has 2 mistakes") as caught:
        load_study(study_file(f'program = "train.py"\n{value}\nstesp = 30'))
    assert [(line, column) for line, column, _ in places(caught.value)] == [(2, value.index("=") + 3), (3, 1)]


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('program = "train.py"\nworlds = [1, 2\nrounds = 3', 3, 1),
        ('program = "train.py', 1, 20),
        ("program = train.py", 1, 11),
        ('program = "train.py"\nprogram = "train.py"', 2, 21),
    ],
)
def test_syntax_errors_have_the_same_form(study_file, text, line, column):
    with pytest.raises(ValueError, match="has one mistake") as caught:
        load_study(study_file(text))
    [(found_line, found_column, _)] = places(caught.value)
    assert (found_line, found_column) == (line, column)
    assert f"{line:>5} | {text.splitlines()[line - 1]}" in str(caught.value)


def test_a_missing_program_and_an_empty_file(study_file):
    with pytest.raises(ValueError, match="the key program is missing"):
        load_study(study_file("worlds = [1]"))
    with pytest.raises(ValueError, match="the key program is missing"):
        load_study(study_file(""))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        load_study(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes("# \xe9".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        load_study(tmp_path / "latin.toml")


POSITIONS = '''# a comment = 3
"quoted key" = 1
a.b."c d" = "x # no comment"
multi = [
  "one",   # ] still inside
  ["nested", 2],
  { inline = 3, deep.er = [4] },
]
text = """
[not.a.table]
key = 1 \\"""
"""
literal = \'\'\'it's\'\'\'
date = 1979-05-27 07:32:00

[table . sub]
x = 1
[[array]]
y = 1
[[array]]
y = 2
  [array.inner]
  z = 3
'''


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("quoted key",), (2, 1, 12), (2, 16, 1)),
        (("a", "b", "c d"), (3, 5, 5), (3, 13, 16)),
        (("multi", 1, 1), None, (6, 14, 1)),
        (("multi", 2, "inline"), (7, 5, 6), (7, 14, 1)),
        (("multi", 2, "deep", "er", 0), None, (7, 28, 1)),
        (("literal",), (13, 1, 7), (13, 11, 10)),
        (("date",), (14, 1, 4), (14, 8, 19)),
        (("table", "sub", "x"), (17, 1, 1), (17, 5, 1)),
        (("array", 0, "y"), (19, 1, 1), (19, 5, 1)),
        (("array", 1, "y"), (21, 1, 1), (21, 5, 1)),
        (("array", 1, "inner", "z"), (23, 3, 1), (23, 7, 1)),
        (("array", 1), (20, 1, 9), (20, 1, 9)),
    ],
)
def test_positions_of_every_form_of_key(path, key, value):
    found = locate(POSITIONS)
    assert found.values[path] == Span(*value)
    if key:
        assert found.keys[path] == Span(*key)


def test_position_of_what_is_missing_is_that_of_its_table():
    assert locate("[a]\nb = 1").of_key(("a", "c")) == Span(1, 1, 3)
