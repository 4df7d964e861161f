// The plugin `tenon.npy`.
#include "hdf5.hpp"
#include "npy.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.npy",
                               .version = "0.1.0",
                               .summary = "arrays in NumPy's and in HDF5's files as data"},
             tenon::npy::Npy, tenon::npy::Hdf5)
