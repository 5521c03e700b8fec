"""The parts of pages that come from the code at every build. See `directive`."""
