// Sum of 64 MiB of f32 over processes of this machine: the transport `socket` against PyTorch's Gloo, in
// turns of one run, and against one copy of the same bytes through a loopback connection.
#include "socket_port.hpp"
#include "step_bench.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/ring/transport.hpp>
#include <tenon/testing/rendezvous.hpp>

#include <fmt/format.h>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

namespace {

using namespace tenon;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Settings {
  int ranks = 2, rounds = 5, operations = 8;
  std::int64_t bytes = 64 << 20;
  std::string python;
  bool json = false;  ///< figures for bench/compare in place of text
};

// Seconds of one all_reduce as rank 0 sees it.
void socket_rank(const Settings& settings, const std::string& folder, int rank) {
  testing::FolderRendezvous rendezvous(folder, rank, settings.ranks);
  const auto clock = make_wall_clock();
  WorldSpec spec;
  spec.ranks = settings.ranks;
  spec.clock = clock.get();
  RingTransport transport(std::make_unique<socket_transport::SocketPort>(
                              socket_transport::connect_mesh(rendezvous, {.address = "127.0.0.1"})),
                          spec, "transport.socket");
  std::vector<int> all(settings.ranks);
  std::iota(all.begin(), all.end(), 0);
  const auto group = transport.open(rank, {.ranks = all, .name = "bench"});
  std::vector<float> data(settings.bytes / 4, 1.0F);
  const TensorView view{data.data(), Shape{settings.bytes / 4}, DType::kF32};
  group->all_reduce(view, ReduceOp::kSum);
  group->barrier();
  const auto begin = Clock::now();
  for (int i = 0; i < settings.operations; ++i) group->all_reduce(view, ReduceOp::kSum);
  if (rank == 0) std::ofstream(folder + "/seconds") << seconds_since(begin) / settings.operations;
}

double measure_socket(const Settings& settings) {
  const testing::RendezvousFolder folder;
  std::vector<pid_t> children;
  for (int rank = 0; rank < settings.ranks; ++rank) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    try {
      socket_rank(settings, folder.path(), rank);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(0);
  }
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  double seconds = 0;
  std::ifstream(folder.path() + "/seconds") >> seconds;
  return seconds;
}

double measure_gloo(const Settings& settings) {
  const std::string command =
      fmt::format("{} {}/bench/all_reduce_torch.py {} {} {}", settings.python, TENON_SOURCE_DIR,
                  settings.ranks, settings.bytes, settings.operations);
  double seconds = 0;
  if (FILE* pipe = ::popen(command.c_str(), "r"); pipe != nullptr) {
    if (std::fscanf(pipe, "%lf", &seconds) != 1) seconds = 0;
    ::pclose(pipe);
  }
  return seconds;
}

// One direction through a connected pair of local sockets that a process writes and another reads.
double measure_copy(const Settings& settings) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 0;
  std::vector<char> data(1 << 20, 'x');
  const auto total = static_cast<std::size_t>(settings.bytes) * static_cast<std::size_t>(settings.operations);
  const pid_t child = ::fork();
  if (child == 0) {
    for (std::size_t sent = 0; sent < total;) {
      const ssize_t now = ::write(ends[0], data.data(), std::min(data.size(), total - sent));
      if (now <= 0) break;
      sent += now;
    }
    ::_exit(0);
  }
  const auto begin = Clock::now();
  for (std::size_t got = 0; got < total;) {
    const ssize_t now = ::read(ends[1], data.data(), data.size());
    if (now <= 0) break;
    got += now;
  }
  const double seconds = seconds_since(begin) / settings.operations;
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return seconds;
}

void print(const char* name, const std::vector<double>& ratios) {
  std::printf("%-40s %s\n", name, bench::spread(ratios).c_str());
}

}  // namespace

int main(int count, char** words) {
  Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string name = words[i];
    if (name == "--json") settings.json = std::string(words[i + 1]) == "true";
    if (name == "--ranks") settings.ranks = std::stoi(words[i + 1]);
    if (name == "--rounds") settings.rounds = std::stoi(words[i + 1]);
    if (name == "--bytes") settings.bytes = std::stoll(words[i + 1]);
    if (name == "--python") settings.python = words[i + 1];
  }
  std::vector<double> rates, gloo, copies;
  for (int round = 0; round < settings.rounds; ++round) {
    const double socket = measure_socket(settings);
    rates.push_back(static_cast<double>(settings.bytes) / socket / 1e9);
    copies.push_back(measure_copy(settings) / socket);
    if (settings.python.empty()) continue;
    if (const double seconds = measure_gloo(settings); seconds > 0) gloo.push_back(seconds / socket);
  }
  if (settings.json) {
    bench::print_json({{"gb_per_s", bench::median(rates)}, {"of_copy", bench::median(copies)}});
    return 0;
  }
  std::printf("all_reduce of %lld bytes f32 over %d processes, %d rounds\n",
              static_cast<long long>(settings.bytes), settings.ranks, settings.rounds);
  print("GB of tensor per second", rates);
  print("of one copy through a local socket", copies);
  if (!gloo.empty()) print("times the speed of Gloo", gloo);
  return 0;
}
