"""What the pages take from the code at every build. See `directive`."""
