"""`python -m scaling` is the command `scaling`."""

from scaling.cli.main import command

if __name__ == "__main__":
    command()
