"""What an operation costs, in counts that no clock changes, with bounds."""
