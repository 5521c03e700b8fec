"""Run the command `fairlane` with `python -m fairlane.cli`."""

from fairlane.cli import main

if __name__ == "__main__":
    main()
