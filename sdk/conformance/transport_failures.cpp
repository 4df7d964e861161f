// Checks how operations of a transport end when a member is late, gives up, or disagrees, and that steady
// operations do not allocate.
#include "allocation_watch.hpp"
#include "transport_checks.hpp"
#include "transport_rig.hpp"

#include "base/elapsed.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>

namespace tenon::conformance {
namespace {

using Clock = std::chrono::steady_clock;

void sleep_s(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

struct Operation {
  const char* name;
  void (*call)(Communicator&, std::vector<float>&);
};

const Operation kOperations[] = {
    {"all_reduce", [](Communicator& c, std::vector<float>& x) { c.all_reduce(view_of(x), ReduceOp::kSum); }},
    {"all_gather", [](Communicator& c, std::vector<float>& x) { c.all_gather(rows_of(x, c.size())); }},
    {"broadcast from the late rank",
     [](Communicator& c, std::vector<float>& x) { c.broadcast(view_of(x), c.size() - 1); }},
    {"barrier", [](Communicator& c, std::vector<float>&) { c.barrier(); }},
    {"receive from the late rank",
     [](Communicator& c, std::vector<float>& x) { c.receive(view_of(x), c.size() - 1, 3); }},
};

constexpr double kDeadline = 0.2, kLate = 2.0;

/// Returns what a call that must be cancelled threw: the reason, another error with its kind, or "".
template <typename Call>
std::string text_of_cancelled(const Call& call) {
  try {
    call();
  } catch (const CancelledError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return fmt::format("another error: {}", error.what());
  }
  return "";
}

/// The last rank of `rig` enters the operation long after the deadline.
void expect_deadline(TransportRig& rig, const Operation& operation) {
  const int late = rig.ranks() - 1;
  std::vector<double> waited(static_cast<std::size_t>(rig.ranks()), 0.0);
  std::vector<char> deadline(static_cast<std::size_t>(rig.ranks()), 0);
  const std::vector<std::string> errors = rig.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(12);
    communicator.barrier();
    if (rank == late) return sleep_s(kLate);
    const auto begin = Clock::now();
    try {
      operation.call(communicator, data);
    } catch (const DeadlineError&) {
      waited[static_cast<std::size_t>(rank)] = base::seconds_since(begin);
      deadline[static_cast<std::size_t>(rank)] = 1;
      throw;
    }
  });
  for (int rank = 0; rank < late; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (deadline[r] == 0) {
      fail(
          fmt::format("rank {} of {} came {} s late to {} with a deadline of {} s; rank {} got {}, expected "
                      "DeadlineError",
                      late, rig.ranks(), kLate, operation.name, kDeadline, rank,
                      errors[r].empty() ? "no error" : "'" + errors[r] + "'"));
    }
    if (errors[r].find(fmt::format("rank {}", late)) == std::string::npos)
      fail(fmt::format("rank {} was late for {}, but rank {} was told: {}", late, operation.name, rank,
                       errors[r]));
    if (waited[r] < 0.9 * kDeadline || waited[r] > 0.9 * kLate) {
      fail(fmt::format("{} ended after {:.2f} s, expected the deadline of {} s", operation.name, waited[r],
                       kDeadline));
    }
  }
}

}  // namespace

void names_the_late_rank(Subject& subject) {
  std::vector<std::unique_ptr<TransportRig>> rigs;
  std::vector<std::future<void>> ended;
  for (const Operation& operation : kOperations) {
    for (const int ranks : {2, 3}) {
      rigs.push_back(std::make_unique<TransportRig>(subject, ranks, kDeadline));
      ended.push_back(std::async(
          std::launch::async, [&operation, rig = rigs.back().get()] { expect_deadline(*rig, operation); }));
    }
  }
  for (std::future<void>& end : ended) end.get();
}

void cancels_all(Subject& subject) {
  const std::string reason = "rank 3: disk full";
  TransportRig rig(subject, 4);
  std::mutex mutex;
  std::vector<std::string> complaints;
  const auto begin = Clock::now();
  const std::vector<std::string> errors = rig.run([&](int rank, Communicator& communicator) {
    const auto ends = [&](const char* what, const auto& call) {
      const std::string found = text_of_cancelled(call);
      if (found == reason) return;
      const std::lock_guard lock(mutex);
      complaints.push_back(
          fmt::format("rank 3 cancelled with '{}'; {} of rank {} got {}, expected CancelledError "
                      "with that reason",
                      reason, what, rank, found.empty() ? "no error" : "'" + found + "'"));
    };
    std::vector<float> data(10);
    if (rank == 0) ends("all_reduce", [&] { communicator.all_reduce(view_of(data), ReduceOp::kSum); });
    if (rank == 1) ends("receive", [&] { communicator.receive(view_of(data), 3, 0); });
    if (rank == 2) ends("send", [&] { communicator.send(view_of(data), 3, 1); });
    if (rank == 3) {
      sleep_s(0.05);
      communicator.cancel(reason);
    }
    ends("a later barrier", [&] { communicator.barrier(); });
  });
  if (!complaints.empty()) fail(complaints.front());
  if (base::seconds_since(begin) > 5)
    fail(fmt::format("cancel ended the waits only after {:.1f} s", base::seconds_since(begin)));
}

void cancels_a_process(Subject& subject) {
  const std::string reason = "rank 2: its process is gone";
  constexpr int kRanks = 3;
  TransportRig rig(subject, kRanks, 3);
  std::mutex mutex;
  std::vector<std::string> complaints;
  std::atomic<int> waiting{0};
  const auto begin = Clock::now();
  // A thread without a communicator reports the failure.
  std::thread control([&] {
    while (waiting < kRanks && base::seconds_since(begin) < 5) sleep_s(0.001);
    sleep_s(0.05);
    for (int rank = 0; rank < kRanks; ++rank) rig.transport(rank).cancel(reason);
  });
  const std::vector<std::string> errors = rig.run([&](int rank, Communicator& communicator) {
    const auto second = rig.open(rank, "second", 0, Purpose::kModel);
    std::vector<float> data(10);
    const auto ends = [&](const char* what, const auto& call) {
      const std::string found = text_of_cancelled(call);
      if (found == reason) return;
      const std::lock_guard lock(mutex);
      complaints.push_back(fmt::format(
          "the transport was cancelled with '{}'; {} of rank {} got {}, expected CancelledError with "
          "that reason",
          reason, what, rank, found.empty() ? "no error" : "'" + found + "'"));
    };
    ++waiting;
    ends("receive", [&] { second->receive(view_of(data), (rank + 1) % kRanks, 0); });
    ends("a later operation of another group",
         [&] { communicator.all_reduce(view_of(data), ReduceOp::kSum); });
  });
  control.join();
  if (!complaints.empty()) fail(complaints.front());
  for (const std::string& error : errors) {
    if (!error.empty()) fail("a transport that is cancelled: " + error);
  }
  if (base::seconds_since(begin) > 5)
    fail(fmt::format("cancel ended the waits only after {:.1f} s", base::seconds_since(begin)));
}

void waits_as_a_group_asks(Subject& subject) {
  constexpr double kPatient = 1.5;
  TransportRig rig(subject, 2, kDeadline);
  rig.run_well("a group with a deadline of its own", [&](int rank, Communicator& communicator) {
    const auto pair = rig.transport(rank).open(
        rank, {.ranks = rig.all(), .name = "pair", .deadline_s = rank == 0 ? kPatient : 0});
    std::vector<float> data{static_cast<float>(rank)};
    communicator.barrier();
    const auto begin = Clock::now();
    // A message that arrives long after the world's deadline is waited for; a missing one is not.
    if (rank == 1) {
      sleep_s(2.5 * kDeadline);
      pair->send(view_of(data), 0, 1);
      sleep_s(kPatient + 2);
      return;
    }
    pair->receive(view_of(data), 1, 1);
    if (data[0] != 1) fail(fmt::format("a late message brought {}, expected 1", data[0]));
    try {
      pair->receive(view_of(data), 1, 2);
    } catch (const DeadlineError&) {
      const double waited = base::seconds_since(begin) - 2.5 * kDeadline;
      if (waited > 0.9 * kPatient) return;
      fail(fmt::format("a group asked for messages to be waited for {} s; the wait ended after {:.2f} s",
                       kPatient, waited));
    }
    fail(fmt::format("a message that never came within {} s ended in no error", kPatient));
  });
}

void notices_disagreement(Subject& subject) {
  struct Odd {
    const char* what;
    Request (*start)(Communicator&, std::vector<float>&, std::vector<double>&);
  };
  const Odd cases[] = {
      {"another shape",
       [](Communicator& c, std::vector<float>& f, std::vector<double>&) {
         return c.start_all_reduce(view_of(f).rows(0, 5), ReduceOp::kSum);
       }},
      {"another type",
       [](Communicator& c, std::vector<float>&, std::vector<double>& d) {
         return c.start_all_reduce(view_of(d, DType::kF64), ReduceOp::kSum);
       }},
      {"another operation",
       [](Communicator& c, std::vector<float>& f, std::vector<double>&) {
         return c.start_all_reduce(view_of(f), ReduceOp::kMax);
       }},
  };
  for (const Odd& odd : cases) {
    TransportRig rig(subject, 3, 2);
    const std::vector<std::string> errors = rig.run([&](int rank, Communicator& communicator) {
      std::vector<float> floats(12);
      std::vector<double> doubles(12);
      communicator.wait(rank == 2 ? odd.start(communicator, floats, doubles)
                                  : communicator.start_all_reduce(view_of(floats), ReduceOp::kSum));
    });
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      if (errors[rank].empty()) {
        fail(fmt::format(
            "in an all_reduce rank 2 passed {} than the others; rank {} got no error: a mismatch is an "
            "error on every member",
            odd.what, rank));
      }
    }
  }
}

void refuses_old_epochs(Subject& subject) {
  TransportRig rig(subject, 2, 0.5);
  const std::vector<std::string> errors = rig.run([&](int rank, Communicator&) {
    const auto mine = rig.open(rank, "members", rank == 0 ? 4 : 5);
    std::vector<float> value{static_cast<float>(rank)};
    mine->all_reduce(view_of(value), ReduceOp::kSum);
  });
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) {
      fail(fmt::format(
          "rank 0 opened a group in epoch 4 and rank 1 in epoch 5; rank {}'s all_reduce succeeded: a "
          "message of an old epoch is refused",
          rank));
    }
  }
}

void transport_allocates_nothing(Subject& subject) {
  const AllocationWatch* const watch = allocation_watch();
  if (watch == nullptr) not_applicable("allocations cannot be counted in a build with a sanitizer");
  constexpr int kRanks = 3;
  TransportRig rig(subject, kRanks);
  rig.run_well("an operation", [&](int rank, Communicator& communicator) {
    std::vector<float> data(999), rows(kRanks * 100), receive(kRanks * 10), send(kRanks * 10);
    const std::int64_t counts[] = {10, 10, 10};
    const auto round = [&] {
      const Request a = communicator.start_all_reduce(view_of(data), ReduceOp::kSum);
      const Request b = communicator.start_reduce_scatter(rows_of(rows, kRanks), ReduceOp::kSum);
      communicator.wait(b);
      communicator.wait(a);
      communicator.all_gather(rows_of(rows, kRanks));
      communicator.broadcast(view_of(data), 1);
      communicator.wait(communicator.start_reduce(view_of(data), 0, ReduceOp::kSum));
      communicator.wait(communicator.start_all_to_all(view_of(send), counts, view_of(receive), counts));
      const Request s = communicator.start_send(view_of(send), (rank + 1) % kRanks, 0);
      const Request r = communicator.start_receive(view_of(receive), (rank + 2) % kRanks, 0);
      communicator.wait(r);
      communicator.wait(s);
      communicator.barrier();
    };
    for (int i = 0; i < 40; ++i) round();  // every slot of a pool has served every operation
    communicator.barrier();
    if (rank == 0) watch->open();
    communicator.barrier();
    for (int i = 0; i < 40; ++i) round();
    communicator.barrier();
    if (rank == 0) watch->close();
    communicator.barrier();
  });
  const std::string stack = first_allocation_from(*watch, subject.file().string());
  if (!stack.empty())
    fail("an operation takes memory from the heap after 40 rounds of all of them. First of them:" + stack);
}

}  // namespace tenon::conformance
