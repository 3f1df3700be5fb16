"""Resource graphs (JGF, Flux R), their folded summary, and matching. Pure: no broker, no store, no Flux."""
