"""Methods of inference: exact, sampling, replica exchange, variational, and the choice between them."""

__all__: list[str] = []
