#include "transport_rig.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/testing/rendezvous.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>

namespace tenon::conformance {

TransportRig::TransportRig(Subject& subject, int ranks, double deadline_s)
    : clock_(make_wall_clock()), all_(ranks) {
  std::iota(all_.begin(), all_.end(), 0);
  WorldSpec world;
  world.ranks = ranks;
  world.deadline_s = deadline_s;
  world.seed = 1;
  world.clock = clock_.get();
  transports_.push_back(subject.make<Transport>());
  if (transports_.front()->query(Rendezvous::kId) != nullptr)
    not_applicable("its ranks are started by a launcher of its own, which this kit does not use");
  if (transports_.front()->query(DeviceTransport::kId) != nullptr)
    not_applicable("its ranks have devices whose memory it reaches itself, and those of this kit have none");
  try {
    connect_threads(world);
  } catch (const Error& alone) {
    // Ranks as threads are refused: make them processes, which join through a rendezvous.
    transports_.clear();
    try {
      connect_processes(subject, world);
    } catch (const Error& met) {
      fail(fmt::format("connect of {} ranks failed without a rendezvous ('{}') and with one ('{}')", ranks,
                       alone.what(), met.what()));
    }
  }
}

void TransportRig::connect_threads(const WorldSpec& world) {
  transports_.front()->connect(world);
  if (static_cast<int>(transports_.front()->local_ranks().size()) != world.ranks)
    not_applicable("its ranks live in other processes, which this kit does not start");
}

void TransportRig::connect_processes(Subject& subject, const WorldSpec& world) {
  std::string folder = (subject.scratch() / "rendezvous_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) fail_run("cannot make " + folder);
  std::vector<std::exception_ptr> failures(all_.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < all_.size(); ++i) transports_.push_back(subject.make<Transport>());
  for (const int rank : all_) {
    threads.emplace_back([&, rank] {
      try {
        testing::FolderRendezvous rendezvous(folder, rank, ranks());
        WorldSpec mine = world;
        mine.rendezvous = &rendezvous;
        Transport& made = transport(rank);
        made.connect(mine);
        const std::span<const int> local = made.local_ranks();
        if (local.size() != 1 || local[0] != rank)
          fail(fmt::format("rank {} of {} processes connected, and local_ranks() is not that rank alone",
                           rank, ranks()));
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

Transport& TransportRig::transport(int rank) {
  return transports_.size() == 1 ? *transports_.front() : *transports_[rank];
}

std::unique_ptr<Communicator> TransportRig::open(int rank, std::string_view name, std::uint32_t epoch,
                                                 Purpose purpose) {
  return transport(rank).open(rank, {.ranks = all_, .name = name, .purpose = purpose, .epoch = epoch});
}

std::vector<std::string> TransportRig::run(const std::function<void(int, Communicator&)>& body) {
  std::vector<int> ids;
  for (const int rank : all_) ids.push_back(clock_->announce(rank, 0, fmt::format("rank{}", rank)));
  std::vector<std::string> errors(all_.size());
  std::vector<std::exception_ptr> failures(all_.size());
  std::vector<std::thread> threads;
  for (const int rank : all_) {
    threads.emplace_back([&, rank] {
      const std::size_t r = rank;
      clock_->enter(ids[r]);
      try {
        const auto communicator = open(rank, "all");
        body(rank, *communicator);
      } catch (const std::exception& error) {
        errors[r] = error.what();
      } catch (...) {
        failures[r] = std::current_exception();
      }
      clock_->leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return errors;
}

void TransportRig::run_well(const std::string& what, const std::function<void(int, Communicator&)>& body) {
  const std::vector<std::string> errors = run(body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty())
      fail(fmt::format("{} failed on rank {} of {}: {}", what, rank, errors.size(), errors[rank]));
  }
}

void require_threads(Subject& subject) {
  if (subject.kind() != Transport::kKind) return;
  const auto clock = make_wall_clock();
  auto transport = subject.make<Transport>();
  WorldSpec world;
  world.ranks = 2;
  world.clock = clock.get();
  try {
    transport->connect(world);
  } catch (const Error& error) {
    not_applicable(fmt::format("runs in this kit have ranks as threads, which it refuses: {}", error.what()));
  }
}

std::vector<float> drawn(std::uint64_t seed, int rank, std::size_t count) {
  std::vector<float> values(count);
  const RandomKey key = random_key(seed, "transport");
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(random_normal(key, static_cast<std::uint64_t>(rank), i));
  return values;
}

void wait_a_little(std::uint64_t seed, int rank, std::uint64_t where) {
  const RandomKey key = random_key(seed, "delay");
  std::this_thread::sleep_for(
      std::chrono::microseconds(random_below(key, static_cast<std::uint64_t>(rank), where, 1500)));
}

}  // namespace tenon::conformance
