"""The shape: admission, requests and their one settlement, in trio, without a wire."""
