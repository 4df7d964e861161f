// For the tests of this folder: ranks over loopback connections, one mesh, port and ring each.
#pragma once

#include "socket_mesh.hpp"
#include "socket_port.hpp"

#include <tenon/clock.hpp>
#include <tenon/ring/transport.hpp>
#include <tenon/testing/rendezvous.hpp>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace tenon::socket_transport {

inline std::vector<SocketMesh> loopback_meshes(int ranks, double deadline_s = 30,
                                               const std::string& address = "127.0.0.1") {
  const testing::RendezvousFolder folder;
  std::vector<SocketMesh> meshes(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      testing::FolderRendezvous rendezvous(folder.path(), rank, ranks, deadline_s);
      meshes[rank] = connect_mesh(
          rendezvous, MeshSettings{.address = address, .interface = "", .deadline_s = deadline_s});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return meshes;
}

}  // namespace tenon::socket_transport
