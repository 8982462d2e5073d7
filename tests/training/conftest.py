"""What all trainings of tests share."""

from tests.one_thread import one_thread as one_thread
