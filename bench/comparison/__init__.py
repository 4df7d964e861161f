"""The parts of bench/compare: rows, processes, the machine, figures and tables. Standard library only."""
