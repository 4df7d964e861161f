"""The parts of bench/scaling: curves, fits, tables and the figure. Standard library only; processes and the machine are comparison's."""
