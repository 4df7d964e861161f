// Checks of transports: how operations end that fail, and every operation against its plain meaning.
#include "allocation_watch.hpp"
#include "base/at.hpp"
#include "base/elapsed.hpp"
#include "transport_rig.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/fixed_order.hpp>
#include <tenon/sdk/traffic.hpp>

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <mutex>
#include <thread>

namespace tenon::conformance {

// Checks how operations of a transport end when a member is late, gives up, or disagrees, and that steady
// operations do not allocate.

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
  std::vector<double> waited(rig.ranks(), 0.0);
  std::vector<char> deadline(rig.ranks(), 0);
  const std::vector<std::string> errors = rig.run([&](int rank, Communicator& communicator) {
    std::vector<float> data(12);
    communicator.barrier();
    if (rank == late) return sleep_s(kLate);
    const auto begin = Clock::now();
    try {
      operation.call(communicator, data);
    } catch (const DeadlineError&) {
      waited[rank] = base::seconds_since(begin);
      deadline[rank] = 1;
      throw;
    }
  });
  for (int rank = 0; rank < late; ++rank) {
    const std::size_t r = rank;
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

void names_who_is_late(Subject& subject) {
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

// Every operation against its plain meaning on 1, 2, 3 and 4 ranks, sums bit for bit in the fixed order,
// traffic against its closed forms.

constexpr int kWorlds[] = {1, 2, 3, 4};
/// Empty, shorter than a line for each member, ending inside a line, several units.
constexpr std::size_t kLengths[] = {0, 1, 7, 64, 1001, 70003};

/// Expected at element `i`: the sum that ends at `owner`, each hop rounded to f32.
float in_order(const std::vector<std::vector<float>>& parts, int owner, std::size_t i) {
  const int members = static_cast<int>(parts.size());
  float sum = base::at(parts, ring_source(owner, 0, members))[i];
  for (int k = 1; k < members; ++k) sum += base::at(parts, ring_source(owner, k, members))[i];
  return sum;
}

std::vector<std::vector<float>> parts_of(Subject& subject, int ranks, std::size_t count) {
  std::vector<std::vector<float>> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(drawn(subject.seed(), rank, count));
  return parts;
}

[[noreturn]] void wrong(const char* operation, int rank, int ranks, std::size_t count, std::size_t i,
                        double found, double expected) {
  fail(fmt::format("{} of {} elements on {} ranks: element {} on rank {} is {:.9g}, expected {:.9g}{}",
                   operation, count, ranks, i, rank, found, expected,
                   std::abs(found - expected) < 1e-4 * std::abs(expected)
                       ? " (sums follow the fixed order of docs/reductions.md bit for bit)"
                       : ""));
}

void is_connected(Subject& subject) {
  for (const int ranks : kWorlds) {
    TransportRig rig(subject, ranks);
    rig.run_well("opening", [&](int rank, Communicator& communicator) {
      if (communicator.rank() != rank || communicator.size() != ranks) {
        fail(fmt::format("rank {} of {} opened a group of all, and its end says rank {} of {}", rank, ranks,
                         communicator.rank(), communicator.size()));
      }
      communicator.barrier();
      // A subset of the world in another order: ranks in the group follow the group's order.
      if (ranks < 3 || rank == 1) return;
      const std::vector<int> pair{2, 0};
      if (rank != 0 && rank != 2) return;
      const auto part = rig.transport(rank).open(rank, {.ranks = pair, .name = "pair"});
      if (part->rank() != (rank == 2 ? 0 : 1) || part->size() != 2)
        fail(fmt::format("in a group of ranks 2, 0 rank {} is member {} of {}", rank, part->rank(),
                         part->size()));
      std::vector<float> value{static_cast<float>(rank)};
      part->broadcast(view_of(value), 0);
      if (value[0] != 2)
        fail(fmt::format("a broadcast in a group of ranks 2, 0 brought {}, expected 2", value[0]));
    });
  }
}

void passes_messages(Subject& subject) {
  for (const int ranks : kWorlds) {
    TransportRig rig(subject, ranks);
    rig.run_well("sending", [&](int rank, Communicator& communicator) {
      const int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
      std::vector<std::vector<float>> out, in(4, std::vector<float>(5));
      std::vector<Request> requests;
      for (int i = 0; i < 4; ++i) out.push_back(drawn(static_cast<std::uint64_t>(i), rank, 5));
      // Tags 7, 8, 7, 9; received as 8, 7, 9, 7: by tag, and in order within one.
      const int sent[] = {7, 8, 7, 9}, received[] = {8, 7, 9, 7}, number[] = {1, 0, 3, 2};
      for (std::size_t i = 0; i < 4; ++i)
        requests.push_back(communicator.start_send(view_of(out[i]), to, sent[i]));
      wait_a_little(subject.seed(), rank, 1);
      for (std::size_t i = 0; i < 4; ++i)
        requests.push_back(communicator.start_receive(view_of(in[i]), from, received[i]));
      for (const Request request : requests) communicator.wait(request);
      for (std::size_t i = 0; i < 4; ++i) {
        if (in[i] != drawn(static_cast<std::uint64_t>(number[i]), from, 5)) {
          fail(
              fmt::format("rank {} sent messages with tags 7, 8, 7, 9; rank {} received tag {} as number {} "
                          "and got another "
                          "message: they match by sender and tag, in order",
                          from, rank, received[i], i));
        }
        if (out[i] != drawn(static_cast<std::uint64_t>(i), rank, 5))
          fail(fmt::format("rank {}'s buffer was changed by sending it", rank));
      }
    });
  }
}

void sums_in_fixed_order(Subject& subject) {
  for (const int ranks : kWorlds) {
    for (const std::size_t count : kLengths) {
      const auto parts = parts_of(subject, ranks, count * static_cast<std::size_t>(ranks));
      TransportRig rig(subject, ranks);
      rig.run_well("a reduction", [&](int rank, Communicator& communicator) {
        std::vector<float> all = base::at(parts, rank), scattered = all, reduced = all;
        const int root = ranks - 1;
        wait_a_little(subject.seed(), rank, count);
        communicator.all_reduce(view_of(all), ReduceOp::kSum);
        communicator.wait(communicator.start_reduce_scatter(rows_of(scattered, ranks), ReduceOp::kSum));
        communicator.wait(communicator.start_reduce(view_of(reduced), root, ReduceOp::kSum));
        for (int chunk = 0; chunk < ranks; ++chunk) {
          const ElementRange range =
              ring_chunk(static_cast<std::int64_t>(all.size()), DType::kF32, chunk, ranks);
          for (std::size_t i = range.begin; i < static_cast<std::size_t>(range.end); ++i) {
            const float expected = in_order(parts, chunk, i);
            if (all[i] != expected) wrong("all_reduce", rank, ranks, all.size(), i, all[i], expected);
          }
        }
        for (std::size_t i = count * static_cast<std::size_t>(rank);
             i < count * (static_cast<std::size_t>(rank) + 1); ++i) {
          if (scattered[i] != in_order(parts, rank, i))
            wrong("reduce_scatter", rank, ranks, all.size(), i, scattered[i], in_order(parts, rank, i));
        }
        for (std::size_t i = 0; i < reduced.size(); ++i) {
          const float expected = rank == root ? in_order(parts, root, i) : base::at(parts, rank)[i];
          if (reduced[i] != expected) wrong("reduce", rank, ranks, reduced.size(), i, reduced[i], expected);
        }
      });
    }
  }
}

/// Whole numbers have the same sum in every type and order.
template <typename T>
void reduces(Subject& subject, DType dtype) {
  for (const int ranks : kWorlds) {
    TransportRig rig(subject, ranks);
    rig.run_well(fmt::format("a reduction of {}", dtype_name(dtype)),
                 [&](int rank, Communicator& communicator) {
                   constexpr std::size_t kCount = 77;
                   const auto value = [](std::size_t i, int r) {
                     return static_cast<int>((i * 7 + static_cast<std::size_t>(r) * 13) % 31);
                   };
                   for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
                     std::vector<T> data(kCount);
                     for (std::size_t i = 0; i < kCount; ++i) data[i] = static_cast<T>(value(i, rank));
                     communicator.all_reduce(view_of(data, dtype), op);
                     for (std::size_t i = 0; i < kCount; ++i) {
                       int expected = value(i, 0);
                       for (int r = 1; r < ranks; ++r) {
                         const int x = value(i, r);
                         expected = op == ReduceOp::kSum   ? expected + x
                                    : op == ReduceOp::kMax ? std::max(expected, x)
                                                           : std::min(expected, x);
                       }
                       if (data[i] == static_cast<T>(expected)) continue;
                       const char* const names[] = {"sum", "max", "min"};
                       fail(fmt::format("all_reduce({}) of {} on {} ranks: element {} is {}, expected {}",
                                        names[static_cast<int>(op)], dtype_name(dtype), ranks, i,
                                        static_cast<double>(data[i]), expected));
                     }
                   }
                 });
  }
}

void reduces_every_type(Subject& subject) {
  reduces<float>(subject, DType::kF32);
  reduces<double>(subject, DType::kF64);
  reduces<std::int32_t>(subject, DType::kI32);
  reduces<std::int64_t>(subject, DType::kI64);
  reduces<std::uint8_t>(subject, DType::kU8);
}

/// Elements from member i to member j; some counts are 0.
std::int64_t passed(int from, int to) {
  return (from + 2 * to) % 4 * 3;
}

void copies_to_all(Subject& subject) {
  for (const int ranks : kWorlds) {
    TransportRig rig(subject, ranks);
    rig.run_well("a copy", [&](int rank, Communicator& communicator) {
      for (const std::size_t row : kLengths) {
        std::vector<float> gathered(row * static_cast<std::size_t>(ranks), -1.0F);
        const std::vector<float> own = drawn(row, rank, row);
        std::copy(own.begin(), own.end(),
                  gathered.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(rank)));
        communicator.all_gather(rows_of(gathered, ranks));
        for (int r = 0; r < ranks; ++r) {
          const std::vector<float> expected = drawn(row, r, row);
          for (std::size_t i = 0; i < row; ++i) {
            const float found = gathered[row * static_cast<std::size_t>(r) + i];
            if (found != expected[i])
              wrong("all_gather", rank, ranks, gathered.size(), i, found, expected[i]);
          }
        }
        const int root = ranks / 2;
        std::vector<float> data = drawn(row + 1, rank, row);
        communicator.broadcast(view_of(data), root);
        const std::vector<float> expected = drawn(row + 1, root, row);
        for (std::size_t i = 0; i < row; ++i) {
          if (data[i] != expected[i]) wrong("broadcast", rank, ranks, row, i, data[i], expected[i]);
        }
      }
    });
  }
}

void exchanges_uneven_parts(Subject& subject) {
  for (const int ranks : kWorlds) {
    TransportRig rig(subject, ranks);
    rig.run_well("all_to_all", [&](int rank, Communicator& communicator) {
      std::vector<std::int64_t> send_counts, receive_counts;
      std::vector<float> send, expected;
      for (int other = 0; other < ranks; ++other) {
        send_counts.push_back(passed(rank, other));
        receive_counts.push_back(passed(other, rank));
        for (int i = 0; i < passed(rank, other); ++i)
          send.push_back(static_cast<float>(100 * rank + 10 * other + i));
        for (int i = 0; i < passed(other, rank); ++i)
          expected.push_back(static_cast<float>(100 * other + 10 * rank + i));
      }
      std::vector<float> receive(expected.size(), -1.0F);
      communicator.wait(
          communicator.start_all_to_all(view_of(send), send_counts, view_of(receive), receive_counts));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        if (receive[i] != expected[i])
          wrong("all_to_all", rank, ranks, expected.size(), i, receive[i], expected[i]);
      }
    });
  }
}

void overlaps(Subject& subject) {
  for (const int ranks : kWorlds) {
    TransportRig rig(subject, ranks);
    rig.run_well("operations in flight", [&](int rank, Communicator& communicator) {
      const auto other = rig.open(rank, "other", 0, Purpose::kModel);
      constexpr std::size_t kOperations = 24;
      std::vector<std::vector<float>> data, sent, received(kOperations, std::vector<float>(9));
      for (std::size_t i = 0; i < kOperations; ++i) {
        data.emplace_back(40 + i, static_cast<float>(rank) + static_cast<float>(i));
        sent.emplace_back(9, static_cast<float>(rank));
      }
      std::vector<Request> sums, messages;
      for (std::size_t i = 0; i < kOperations; ++i) {
        const int tag = static_cast<int>(i);
        wait_a_little(subject.seed(), rank, i);
        messages.push_back(other->start_send(view_of(sent[i]), (rank + 1) % ranks, tag));
        sums.push_back(communicator.start_all_reduce(view_of(data[i]), ReduceOp::kSum));
        messages.push_back(other->start_receive(view_of(received[i]), (rank + ranks - 1) % ranks, tag));
      }
      // Each rank waits in another order, and polls every third request first.
      for (std::size_t k = 0; k < kOperations; ++k) {
        const std::size_t i = (k * 7 + static_cast<std::size_t>(rank) * 5) % kOperations;
        if (i % 3 == 0) communicator.done(sums[i]);
        communicator.wait(sums[i]);
        const float expected = static_cast<float>(ranks * static_cast<int>(i) + ranks * (ranks - 1) / 2);
        for (std::size_t j = 0; j < data[i].size(); ++j) {
          if (data[i][j] != expected)
            wrong("all_reduce in flight", rank, ranks, data[i].size(), j, data[i][j], expected);
        }
      }
      for (const Request request : messages) other->wait(request);
      for (const auto& message : received) {
        const auto from = static_cast<float>((rank + ranks - 1) % ranks);
        if (message != std::vector<float>(9, from))
          wrong("send beside all_reduce", rank, ranks, 9, 0, message[0], from);
      }
      communicator.barrier();
    });
  }
}

void counts_what_it_sends(Subject& subject) {
  for (const int ranks : kWorlds) {
    TransportRig rig(subject, ranks);
    std::vector<LinkCounts> ends(ranks);
    rig.run_well("an operation", [&](int rank, Communicator& communicator) {
      constexpr std::int64_t kRow = 1003;
      std::vector<float> data(kRow * ranks);
      const std::int64_t bytes = kRow * ranks * 4;
      LinkCounts before = communicator.counts();
      const auto expect = [&](const char* what, const Traffic& wanted) {
        const LinkCounts now = communicator.counts();
        if (now.bytes_sent - before.bytes_sent != wanted.bytes ||
            now.messages_sent - before.messages_sent != wanted.messages ||
            now.operations - before.operations != 1) {
          fail(fmt::format(
              "{} on rank {} of {} counted {} bytes in {} messages and {} operations; the closed form "
              "says {} bytes in {} messages and 1 operation",
              what, rank, ranks, now.bytes_sent - before.bytes_sent, now.messages_sent - before.messages_sent,
              now.operations - before.operations, wanted.bytes, wanted.messages));
        }
        before = now;
      };
      communicator.all_reduce(view_of(data), ReduceOp::kSum);
      expect("all_reduce", all_reduce_traffic(kRow * ranks, DType::kF32, rank, ranks));
      communicator.wait(communicator.start_reduce_scatter(rows_of(data, ranks), ReduceOp::kSum));
      expect("reduce_scatter", row_ring_traffic(bytes, ranks));
      communicator.all_gather(rows_of(data, ranks));
      expect("all_gather", row_ring_traffic(bytes, ranks));
      communicator.broadcast(view_of(data), 0);
      expect("broadcast", broadcast_traffic(bytes, rank, 0, ranks));
      communicator.wait(communicator.start_reduce(view_of(data), 0, ReduceOp::kSum));
      expect("reduce", reduce_traffic(bytes, rank, 0, ranks));
      communicator.barrier();
      expect("barrier", barrier_traffic(ranks));
      base::at(ends, rank) = communicator.counts();
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const LinkCounts total = rig.transport(rank).counts(rank, Purpose::kGradient);
      const LinkCounts& end = base::at(ends, rank);
      if (total.bytes_sent != end.bytes_sent || total.operations != end.operations) {
        fail(fmt::format(
            "counts({}, gradient) of the transport is {} bytes in {} operations after its communicator "
            "was closed, which had counted {} in {}",
            rank, total.bytes_sent, total.operations, end.bytes_sent, end.operations));
      }
      if (rig.transport(rank).counts(rank, Purpose::kModel).operations != 0)
        fail("operations of one purpose are counted for another");
    }
  }
}

constexpr const char* kTransportKind = "transport/1";
constexpr Check kTransportChecks[] = {
    {"transport.is_connected", kTransportKind,
     "groups of the world and of parts of it, with ranks in group order", is_connected},
    {"transport.passes_messages", kTransportKind, "messages match by sender and tag, in order",
     passes_messages},
    {"transport.sums_in_fixed_order", kTransportKind, "sums of every length have the bits of the fixed order",
     sums_in_fixed_order, 30},
    {"transport.reduces_every_type", kTransportKind, "sum, max and min of reals and integers",
     reduces_every_type},
    {"transport.copies_to_all", kTransportKind, "all_gather and broadcast bring the data of others",
     copies_to_all},
    {"transport.exchanges_uneven_parts", kTransportKind,
     "all_to_all brings each part to its receiver, empty ones too", exchanges_uneven_parts},
    {"transport.overlaps", kTransportKind, "many operations of two groups in flight, waited for in any order",
     overlaps},
    {"transport.counts_what_it_sends", kTransportKind,
     "bytes, messages and operations equal the closed forms", counts_what_it_sends},
    {"transport.names_the_late_rank", kTransportKind,
     "each wait ends at the deadline and says who did not come", names_who_is_late},
    {"transport.cancels_all", kTransportKind,
     "cancel ends the waits of all members, now and later, with its reason", cancels_all},
    {"transport.cancels_a_process", kTransportKind,
     "cancel of the transport ends the waits of its process in every group, with its reason",
     cancels_a_process},
    {"transport.waits_as_a_group_asks", kTransportKind,
     "a group with a longer deadline waits longer for messages", waits_as_a_group_asks},
    {"transport.notices_disagreement", kTransportKind,
     "members that pass different shapes or types all get an error", notices_disagreement},
    {"transport.refuses_old_epochs", kTransportKind, "members of two epochs do not talk to each other",
     refuses_old_epochs},
    {"transport.allocates_nothing", kTransportKind,
     "operations in the steady state take nothing from the heap", transport_allocates_nothing, 20, true},
};

}  // namespace

std::span<const Check> transport_checks() {
  return kTransportChecks;
}

}  // namespace tenon::conformance
