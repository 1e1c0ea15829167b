"""An index of the guide: from a word to commands, lessons, quizzes and pages."""
