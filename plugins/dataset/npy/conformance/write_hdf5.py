"""Writes xy.h5 from x.npy and y.npy beside it, with h5py: another program than the one that reads it."""
import pathlib

import h5py
import numpy

FOLDER = pathlib.Path(__file__).resolve().parent

with h5py.File(FOLDER / "xy.h5", "w", libver="earliest") as file:
    x, y = (numpy.load(FOLDER / f"{name}.npy") for name in "xy")
    file.create_dataset("x", data=x, chunks=(2, x.shape[1]), compression="gzip", shuffle=True, track_times=False)
    file.create_dataset("y", data=y.astype(">i2"), track_times=False)
