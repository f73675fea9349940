"""One table, one script, one set of options."""

from dataclasses import replace

from synthetic import make_run

from paceline.selection import select_newest


def test_runs_of_an_older_script_or_other_options_are_left_out():
    old = make_run(started=1.0, script_hash="old")
    first = make_run(started=2.0, world=1)
    second = make_run(started=3.0, world=2)
    assert select_newest([old, first, second]) == ([first, second], [old])
    fewer_cores = replace(first, options={**first.options, "cores_per_rank": 1}, started=4.0)
    assert select_newest([first, second, fewer_cores]) == ([fewer_cores], [first, second])
    newer_torch = replace(second, versions={"torch": "9"}, started=5.0)
    assert select_newest([first, newer_torch]) == ([newer_torch], [first])
    elsewhere = replace(second, machine={"physical_cores": 64}, started=6.0)
    assert select_newest([first, elsewhere]) == ([elsewhere], [first])
    assert select_newest([]) == ([], [])


def test_patience_is_no_difference():
    first = make_run(started=1.0, options={"steps": 30, "timeout_s": 300.0})
    second = make_run(started=2.0, world=2, options={"steps": 30, "timeout_s": 10.0})
    assert select_newest([first, second]) == ([first, second], [])


def test_each_program_has_its_own_newest_script():
    one = make_run(program="a.py", script_hash="a", started=1.0)
    two = make_run(program="b.py", script_hash="b", started=2.0)
    assert select_newest([one, two]) == ([one, two], [])
