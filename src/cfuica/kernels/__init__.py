"""The few hot loops: a plain torch definition, and a fast CPU form tested against it."""
