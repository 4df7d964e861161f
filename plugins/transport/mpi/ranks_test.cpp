// One rank of a test under mpirun: every collective against reduce_in_order, counts against the closed forms,
// messages, concurrent operations, disagreement, lateness, cancellation. Prints errors and then exits with
// status 1. `alone`: the error without a launcher. `library`: sums of the library.
#include "mpi_transport.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>
#include <tenon/sdk/fixed_order.hpp>
#include <tenon/sdk/traffic.hpp>

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

namespace {

using namespace tenon;

int wrong = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "wrong: %s\n", what.c_str());
  ++wrong;
}

template <typename Call>
void expect_error(Call&& call, const std::string& part, const std::string& what) {
  try {
    call();
    expect(false, what + ": no error, expected '" + part + "'");
  } catch (const Error& error) {
    expect(std::string(error.what()).find(part) != std::string::npos,
           what + ": '" + error.what() + "', expected '" + part + "'");
  }
}

using Bytes = std::vector<std::byte>;

// Finite numbers of a type, the same in every process.
Bytes part_of(DType dtype, std::int64_t elements, int rank) {
  std::mt19937 engine(static_cast<unsigned>(rank) + static_cast<unsigned>(elements));
  Bytes bytes(static_cast<std::size_t>(dtype_bytes(dtype, elements)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  const std::size_t width = dtype_bits(dtype) / 8;
  for (std::size_t i = width - 1; i < bytes.size(); i += width) bytes[i] &= std::byte{0xbf};
  return bytes;
}

void sum(Bytes& out, DType dtype, std::int64_t elements, int owner, ElementRange range, int ranks) {
  std::vector<Bytes> parts;
  std::vector<const void*> inputs;
  const std::size_t offset = dtype_bytes(dtype, range.begin);
  for (int k = 0; k < ranks; ++k) {
    parts.push_back(part_of(dtype, elements, ring_source(owner, k, ranks)));
    inputs.push_back(parts.back().data() + offset);
  }
  reduce_in_order(inputs, out.data() + offset, range.size(), dtype, ReduceOp::kSum);
}

void collectives(Communicator& group) {
  const int rank = group.rank(), ranks = group.size();
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI64}) {
    for (const std::int64_t row : {0, 1, 77, 20011}) {
      const std::int64_t elements = row * ranks;
      const std::string what = fmt::format("{} {} on {} ranks", dtype_name(dtype), elements, ranks);
      Bytes expected = part_of(dtype, elements, rank), mine = expected;
      const auto bytes = static_cast<std::int64_t>(mine.size());
      const LinkCounts before = group.counts();
      group.all_reduce({mine.data(), Shape{elements}, dtype}, ReduceOp::kSum);
      const Traffic traffic = all_reduce_traffic(elements, dtype, rank, ranks);
      expect(group.counts().bytes_sent - before.bytes_sent == traffic.bytes &&
                 group.counts().messages_sent - before.messages_sent == traffic.messages,
             "counts of all_reduce " + what);
      for (int chunk = 0; chunk < ranks; ++chunk)
        sum(expected, dtype, elements, chunk, ring_chunk(elements, dtype, chunk, ranks), ranks);
      expect(mine == expected, "all_reduce " + what);

      mine = part_of(dtype, elements, rank);
      group.wait(group.start_reduce({mine.data(), Shape{elements}, dtype}, ranks - 1, ReduceOp::kSum));
      sum(expected, dtype, elements, ranks - 1, {0, elements}, ranks);
      expect(mine == (rank == ranks - 1 ? expected : part_of(dtype, elements, rank)), "reduce " + what);
      group.broadcast({mine.data(), Shape{elements}, dtype}, ranks - 1);
      expect(mine == expected, "broadcast " + what);

      mine = part_of(dtype, elements, rank);
      group.wait(group.start_reduce_scatter({mine.data(), Shape{ranks, row}, dtype}, ReduceOp::kSum));
      sum(expected, dtype, elements, rank, {row * rank, row * (rank + 1)}, ranks);
      const std::int64_t begin = bytes / ranks * rank;
      expect(bytes == 0 || std::memcmp(mine.data() + begin, expected.data() + begin, bytes / ranks) == 0,
             "reduce_scatter " + what);
      group.all_gather({mine.data(), Shape{ranks, row}, dtype});
      for (int r = 0; r < ranks; ++r) sum(expected, dtype, elements, r, {row * r, row * (r + 1)}, ranks);
      expect(mine == expected, "all_gather " + what);
    }
  }
}

void exchange(Communicator& group) {
  const int rank = group.rank(), ranks = group.size();
  std::vector<std::int64_t> send_counts, receive_counts;
  std::vector<float> send, expected;
  for (int other = 0; other < ranks; ++other) {
    send_counts.push_back((rank + 2 * other) % 3 * 30001);
    receive_counts.push_back((other + 2 * rank) % 3 * 30001);
    send.insert(send.end(), static_cast<std::size_t>(send_counts.back()),
                static_cast<float>(10 * rank + other));
    expected.insert(expected.end(), static_cast<std::size_t>(receive_counts.back()),
                    static_cast<float>(10 * other + rank));
  }
  std::vector<float> receive(expected.size());
  const auto view = [](std::vector<float>& x) {
    return TensorView{x.data(), Shape{static_cast<std::int64_t>(x.size())}, DType::kF32};
  };
  group.wait(group.start_all_to_all(view(send), send_counts, view(receive), receive_counts));
  expect(receive == expected, "all_to_all");

  std::vector<std::vector<float>> out, in, sums;
  std::vector<Request> requests;
  for (int i = 0; i < 30; ++i) {
    out.emplace_back(1000 * static_cast<std::size_t>(i), static_cast<float>(rank + i));
    in.emplace_back(1000 * static_cast<std::size_t>(i));
    sums.emplace_back(2000 * static_cast<std::size_t>(i), 1.0F);
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int tag = static_cast<int>(i);
    requests.push_back(group.start_all_reduce(view(sums[i]), ReduceOp::kSum));
    requests.push_back(group.start_send(view(out[i]), (rank + 1) % ranks, tag));
    requests.push_back(group.start_receive(view(in[out.size() - 1 - i]), (rank + ranks - 1) % ranks,
                                           static_cast<int>(out.size()) - 1 - tag));
  }
  for (auto it = requests.rbegin(); it != requests.rend(); ++it) group.wait(*it);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto from = static_cast<float>((rank + ranks - 1) % ranks);
    expect(in[i] == std::vector<float>(1000 * i, from + static_cast<float>(i)), fmt::format("message {}", i));
    expect(sums[i] == std::vector<float>(2000 * i, static_cast<float>(ranks)), fmt::format("sum {}", i));
  }
}

void failures(mpi_transport::MpiTransport& transport, std::span<const int> all, int rank) {
  const int last = static_cast<int>(all.size()) - 1;
  const auto open = [&](std::string_view name) { return transport.open(rank, {.ranks = all, .name = name}); };
  std::vector<float> data(12);
  const auto view = [&](std::int64_t count) { return TensorView{data.data(), Shape{count}, DType::kF32}; };
  {
    const auto group = open("disagreement");
    expect_error([&] { group->all_reduce(view(rank == last ? 5 : 12), ReduceOp::kSum); },
                 fmt::format("rank {} started all_reduce(sum, f32 [5])", last), "disagreement");
  }
  {
    const auto group = open("late");
    group->barrier();
    if (rank == last) std::this_thread::sleep_for(std::chrono::milliseconds(7000));
    expect_error([&] { group->barrier(); },
                 fmt::format("rank {} did not join barrier #1 of 'late' within 5 s", last), "lateness");
  }
  {
    const auto group = open("cancelled");
    if (rank == last) group->cancel("disk full");
    expect_error([&] { group->barrier(); }, "disk full", "cancellation");
  }
}

std::vector<float> numbers(std::int64_t count, int slope, int begin) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(begin + slope * static_cast<int>(i % 251));
  return values;
}

// Integers have one sum in any order of the library.
void library_sums() {
  mpi_transport::MpiTransport transport(true);
  auto* const rendezvous = static_cast<Rendezvous*>(transport.query(Rendezvous::kId));
  const int rank = rendezvous->rank(), ranks = rendezvous->ranks(), last = ranks - 1;
  const auto* const reason = static_cast<NotRepeatable*>(transport.query(NotRepeatable::kId));
  expect(reason != nullptr && reason->reason().find("transport.fast_nondeterministic") != std::string::npos,
         "the reason why runs may differ");
  const auto clock = make_wall_clock();
  WorldSpec spec;
  spec.ranks = ranks;
  spec.deadline_s = 5;
  spec.clock = clock.get();
  spec.rendezvous = rendezvous;
  transport.connect(spec);
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  const auto view = [](std::vector<float>& x, std::int64_t count) {
    return TensorView{x.data(), Shape{count}, DType::kF32};
  };
  const auto sums = [&](std::string_view name) {
    const auto group = transport.open(rank, {.ranks = all, .name = name, .purpose = Purpose::kGradient});
    std::vector<std::vector<float>> data, small;
    std::vector<Request> requests;
    constexpr std::int64_t kCount = 600'003;  // three pieces
    for (int i = 0; i < 12; ++i) {
      data.push_back(numbers(kCount, 1, rank + i));
      small.emplace_back(100, static_cast<float>(i));
    }
    const LinkCounts before = group->counts();
    for (std::size_t i = 0; i < data.size(); ++i) {
      requests.push_back(
          group->start_all_reduce(view(data[i], kCount), i % 3 == 2 ? ReduceOp::kMax : ReduceOp::kSum));
      requests.push_back(group->start_all_reduce(view(small[i], 100), ReduceOp::kSum));
    }
    for (auto it = requests.rbegin(); it != requests.rend(); ++it) {
      while ((it->id & 1) == 0 && !group->done(*it)) std::this_thread::yield();
      group->wait(*it);
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
      const int n = static_cast<int>(i);
      const std::vector<float> expected =
          n % 3 == 2 ? numbers(kCount, 1, last + n) : numbers(kCount, ranks, ranks * last / 2 + n * ranks);
      expect(data[i] == expected, fmt::format("the library's sum {} of {}", i, name));
      expect(small[i] == std::vector<float>(100, static_cast<float>(n * ranks)),
             fmt::format("small sum {}", i));
    }
    // Each sum, the agreement on it, and once the channel.
    std::uint64_t expected = broadcast_traffic(8, rank, 0, ranks).bytes;
    for (int i = 0; i < 12; ++i) {
      expected += all_reduce_traffic(kCount, DType::kF32, rank, ranks).bytes +
                  all_reduce_traffic(8, DType::kI64, rank, ranks).bytes +
                  all_reduce_traffic(100, DType::kF32, rank, ranks).bytes;
    }
    expect(group->counts().bytes_sent - before.bytes_sent == expected,
           fmt::format("the library's sums count {} bytes, expected {}",
                       group->counts().bytes_sent - before.bytes_sent, expected));
    expect(transport.counts(rank, Purpose::kGradient).bytes_sent >= group->counts().bytes_sent,
           "totals of the library's sums");
  };
  // Two groups at once, whose sums begin in another order on every rank.
  std::thread other([&] { sums("other"); });
  sums("one");
  other.join();
  if (ranks == 1) return;
  std::vector<float> data(100'003);
  {
    const auto group = transport.open(rank, {.ranks = all, .name = "disagreement"});
    expect_error([&] { group->all_reduce(view(data, rank == last ? 90'000 : 100'003), ReduceOp::kSum); },
                 "members of one all_reduce pass 90000 to 100003 elements", "disagreement");
    group->all_reduce(view(data, 100'003), ReduceOp::kSum);
    group->barrier();
  }
  {
    const auto group = transport.open(rank, {.ranks = all, .name = "late"});
    group->all_reduce(view(data, 100'003), ReduceOp::kSum);
    if (rank == last) std::this_thread::sleep_for(std::chrono::milliseconds(7000));
    expect_error([&] { group->all_reduce(view(data, 100'003), ReduceOp::kSum); },
                 fmt::format("rank {} did not join all_reduce #", last), "lateness");
  }
  // Last of all: no call of MPI follows.
  const auto group = transport.open(rank, {.ranks = all, .name = "cancelled"});
  group->all_reduce(view(data, 100'003), ReduceOp::kSum);
  std::thread control([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    transport.cancel("disk full");
  });
  if (rank == last) std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const auto begin = std::chrono::steady_clock::now();
  expect_error([&] { group->all_reduce(view(data, 100'003), ReduceOp::kSum); }, "disk full", "cancellation");
  expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3), "cancellation comes at once");
  control.join();
}

int run() {
  mpi_transport::MpiTransport transport;
  auto* const rendezvous = static_cast<Rendezvous*>(transport.query(Rendezvous::kId));
  const int rank = rendezvous->rank(), ranks = rendezvous->ranks();
  for (const std::string text : {"first", "", "third, which is longer"}) {
    const std::vector<std::string> texts = rendezvous->exchange(text + std::to_string(rank));
    for (int r = 0; r < ranks; ++r) expect(texts[r] == text + std::to_string(r), "the rendezvous' texts");
  }
  const auto clock = make_wall_clock();
  WorldSpec spec;
  spec.ranks = ranks + 1;
  spec.deadline_s = 5;
  spec.clock = clock.get();
  spec.rendezvous = rendezvous;
  expect_error([&] { transport.connect(spec); },
               fmt::format("the configuration has {} ranks ([parallel]), but {} processes", ranks + 1, ranks),
               "a wrong world");
  spec.ranks = ranks;
  transport.connect(spec);
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  {
    const auto group = transport.open(rank, {.ranks = all, .name = "all", .purpose = Purpose::kGradient});
    group->barrier();
    collectives(*group);
    exchange(*group);
    group->barrier();
  }
  if (ranks > 1) failures(transport, all, rank);
  return wrong == 0 ? 0 : 1;
}

int run_library() {
  library_sums();
  return wrong == 0 ? 0 : 1;
}

int alone() {
  mpi_transport::MpiTransport transport;
  expect_error([&] { static_cast<Rendezvous*>(transport.query(Rendezvous::kId))->rank(); },
               "was not started by an MPI launcher; write mpirun -n 4 tenon train", "without mpirun");
  const auto clock = make_wall_clock();
  WorldSpec spec;
  spec.clock = clock.get();
  expect_error([&] { transport.connect(spec); }, "was not started by an MPI launcher",
               "connect without mpirun");
  expect_error([&] { transport.open(0, {}); }, "used before connect", "open");
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int count, char** words) {
  try {
    const std::string_view what = count > 1 ? words[1] : "";
    return what == "alone" ? alone() : what == "library" ? run_library() : run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wrong: %s\n", error.what());
    return 1;
  }
}
