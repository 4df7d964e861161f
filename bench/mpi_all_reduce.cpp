// Sum of 64 MiB of f32 over the processes of an mpirun: the fixed order of the transports openmpi and mpich
// and that of fast_nondeterministic, each against a plain MPI_Allreduce, in turns of one run.
//   mpirun.openmpi -n 2 build/release/bench/mpi_all_reduce_openmpi
#include "mpi_transport.hpp"

#include <tenon/clock.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

namespace {

using namespace tenon;
using Steady = std::chrono::steady_clock;

constexpr int kRounds = 9, kOperations = 4;
constexpr std::int64_t kCount = 16 << 20;

void print(const char* name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::printf("%-56s %.2f (%.2f to %.2f)\n", name, values[values.size() / 2], values.front(), values.back());
}

}  // namespace

int main() {
  mpi_transport::MpiRendezvous rendezvous;
  const auto clock = make_wall_clock();
  WorldSpec spec;
  spec.ranks = rendezvous.ranks();
  spec.clock = clock.get();
  mpi_transport::MpiTransport fixed, fast(true);
  std::vector<int> all(spec.ranks);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::unique_ptr<Communicator>> groups;
  for (mpi_transport::MpiTransport* transport : {&fixed, &fast}) {
    transport->connect(spec);
    groups.push_back(transport->open(rendezvous.rank(), {.ranks = all, .name = "bench"}));
  }
  std::vector<float> data(kCount, 1.0F);
  const TensorView view{data.data(), Shape{kCount}, DType::kF32};
  const auto seconds_of = [&](const auto& operation) {
    std::fill(data.begin(), data.end(), 1.0F);
    groups[0]->barrier();
    const auto begin = Steady::now();
    for (int i = 0; i < kOperations; ++i) operation();
    return std::chrono::duration<double>(Steady::now() - begin).count() / kOperations;
  };
  std::vector<double> rates, in_order, through;
  for (int round = -1; round < kRounds; ++round) {
    const double own = seconds_of([&] { groups[0]->all_reduce(view, ReduceOp::kSum); });
    const double handed_on = seconds_of([&] { groups[1]->all_reduce(view, ReduceOp::kSum); });
    const double library = seconds_of([&] {
      const std::lock_guard lock(rendezvous.mutex());
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(kCount), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    if (round < 0) continue;  // pages and connections are new
    rates.push_back(static_cast<double>(view.bytes()) / own / 1e9);
    in_order.push_back(library / own);
    through.push_back(library / handed_on);
  }
  if (rendezvous.rank() == 0) {
    std::printf("all_reduce of 64 MiB f32 over %d processes, %s, %d rounds\n", spec.ranks,
                std::string(mpi_transport::vendor()).c_str(), kRounds);
    print("GB of tensor per second, fixed order", rates);
    print("times the speed of MPI_Allreduce: fixed order", in_order);
    print("times the speed of MPI_Allreduce: fast_nondeterministic", through);
  }
  return 0;
}
