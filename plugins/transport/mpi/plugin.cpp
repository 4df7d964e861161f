// The plugins `tenon.transport_openmpi` and `tenon.transport_mpich`: one source, built for each library.
#include "mpi_transport.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = TENON_MPI_PLUGIN,
                               .version = "0.1.0",
                               .summary = "bytes between ranks that are processes, over " TENON_MPI_VENDOR},
             tenon::mpi_transport::MpiTransport)
