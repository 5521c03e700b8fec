"""Let `python -m fairlane` do what `fairlane` does."""

from fairlane.cli import main

if __name__ == "__main__":
    main()
