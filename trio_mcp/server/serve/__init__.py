"""How a call is served: handlers of methods, results, and the engine that drives them."""
