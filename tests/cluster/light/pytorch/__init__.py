"""The half of the light benchmark that the controller reads."""
