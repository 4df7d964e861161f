// A connection between every two processes of a run, established through a rendezvous: every process listens,
// announces its address, connects to all lower ranks and accepts all higher ones. Both ends of a connection
// prove that they belong to the same run before a frame passes.
#pragma once

#include "descriptor.hpp"

#include <tenon/transport.hpp>

#include <string>
#include <vector>

namespace tenon::socket_transport {

struct MeshSettings {
  std::string address = {};    ///< numeric or a host name; "" = all
  std::string interface = {};  ///< "" = all
  double deadline_s = 60;
};

struct Mesh {
  int rank = 0;
  std::vector<Descriptor> peers;  ///< by rank; none for its own
};

/// Collective. Throws DeadlineError that names the ranks that did not come.
Mesh connect_mesh(Rendezvous& rendezvous, const MeshSettings& settings);

}  // namespace tenon::socket_transport
