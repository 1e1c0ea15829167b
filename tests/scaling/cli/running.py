"""Running `scaling` in this process, and what every refusal has in common."""

from scaling.cli.main import main


def run(capsys, *arguments) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `scaling ARGUMENTS`."""
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def check_refused(result, *parts, one_line: bool = True) -> None:
    """Exit code 2, one message on stderr with all `parts`, nothing on stdout."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and "Traceback" not in err
    assert err.count("\n") == 1 or not one_line
    assert [part for part in parts if part not in err] == []
