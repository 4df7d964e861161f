// The costs of moving and hiding bytes, each figure against a peer of the same run: all-reduce of 64 MiB over
// two ranks against Gloo between two processes and against copying; a data-parallel step of two ranks against
// the step of one; how much of an all-reduce of half a backward is hidden; a mixing slot of PALSGD against a
// gradient slot. Usage: communication [--rounds N] [--steps N] [--python PYTHON]; --steps 0: the all-reduce
// alone
#include "gpt_shape.hpp"
#include "product_scaling.hpp"

#include <tenon/clock.hpp>
#include <tenon/plugin.hpp>

#include <cstring>
#include <ctime>
#include <utility>

namespace {

using namespace tenon;
using bench::GptShape;
using bench::on_ranks;
using bench::Settings;
using bench::train;

constexpr std::int64_t kBytes = std::int64_t{64} << 20;
constexpr int kRanks = 2;
constexpr int kOperations = 7;  ///< per round; the first ones touch memory for the first time

/// Processor time of this thread, which excludes the work of neighbours on the same cores.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double all_reduce_seconds(Registry& registry, Host& host) {
  const auto clock = make_wall_clock();
  auto transport = testing::make<Transport>(registry, host, "thread", "");
  WorldSpec world;
  world.ranks = kRanks;
  world.clock = clock.get();
  transport->connect(world);
  const int ranks[kRanks] = {0, 1};
  std::vector<std::vector<float>> data(kRanks, std::vector<float>(kBytes / 4, 1.0f));
  std::vector<std::unique_ptr<Communicator>> ends;
  for (const int rank : ranks) ends.push_back(transport->open(rank, {ranks, "bench", Purpose::kGradient, 0}));
  return on_ranks(kRanks, kOperations, [&](int rank) {
    const std::size_t r = rank;
    ends[r]->all_reduce({data[r].data(), Shape{kBytes / 4}, DType::kF32, MemorySpace::kHost}, ReduceOp::kSum);
  });
}

/// Each of two threads copies 64 MiB: as many bytes are read and written as in a shared-memory all-reduce.
double copy_seconds() {
  std::vector<std::vector<char>> from(kRanks, std::vector<char>(kBytes, 1)), to = from;
  return on_ranks(kRanks, kOperations, [&](int rank) {
    const std::size_t r = rank;
    std::memcpy(to[r].data(), from[r].data(), kBytes);
  });
}

void all_reduce(const Settings& settings, Registry& registry, Host& host) {
  std::vector<double> ours, copies, over_gloo, of_copy;
  for (int round = 0; round < settings.rounds; ++round) {
    const double us = all_reduce_seconds(registry, host), copy = copy_seconds();
    ours.push_back(1e3 * us);
    copies.push_back(1e3 * copy);
    of_copy.push_back(copy / us);
    const double gloo = bench::peer_rate(settings, "all_reduce_gloo.py",
                                         fmt::format("--bytes {} --operations {}", kBytes, kOperations));
    if (gloo > 0) over_gloo.push_back(gloo / us);
  }
  fmt::print("all-reduce of 64 MiB over 2 ranks: {} ms; two threads copying 64 MiB each: {} ms\n",
             bench::spread(ours), bench::spread(copies));
  fmt::print("  of the rate of copying: {}\n", bench::spread(of_copy));
  if (over_gloo.empty())
    fmt::print("  Gloo: skipped, '{}' cannot run all_reduce_gloo.py\n", settings.python);
  else
    fmt::print("  Gloo between two processes takes {} times as long\n", bench::spread(over_gloo));
}

std::string parallel_tables(int ranks, const std::string& strategy, const std::string& link) {
  return fmt::format("[parallel]\nranks = {}\n[transport]\ntype = \"thread\"\n{}[sync]\n{}\n", ranks, link,
                     strategy);
}

/// Seconds of slots on rank 0.
struct SlotTimes {
  std::vector<double> applied, mixed;
  std::vector<double> processor;  ///< of the rank's thread, from slot to slot
  double before_s = 0;
};
SlotTimes slots;

class Watch final : public Observer {
 public:
  static constexpr ComponentInfo kInfo{.id = "bench_slots", .summary = "seconds of slots"};
  explicit Watch(const Options&) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {
    slots = {};
    slots.before_s = thread_seconds();
  }
  void on_slot(const SlotRecord& record) override {
    const double now_s = thread_seconds();
    slots.processor.push_back(now_s - std::exchange(slots.before_s, now_s));
    (record.applied ? slots.applied : slots.mixed).push_back(record.seconds);
  }
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(watch, PluginInfo{.id = "bench.slots", .version = "1.0.0", .summary = "seconds of slots"},
                    Watch)

void data_parallel(const Settings& settings, Registry& registry, Host& host) {
  GptShape shape;
  shape.batch = 4;
  Settings one = settings;
  one.threads = 1;
  const std::string base = bench::config_text(shape, "type = \"fp32\"", one);
  const std::string observer = "[[observe]]\ntype = \"bench_slots\"\n";
  const bench::Products products{static_cast<std::int64_t>(shape.batch) * shape.context, 4 * shape.width,
                                 shape.width};
  std::vector<double> ratios, scalings, undisturbed, processor;
  for (int round = 0; round < settings.rounds; ++round) {
    const double before = bench::product_scaling(registry, host, products);
    train(base + observer, &watch);
    const SlotTimes alone = slots;
    train(base + parallel_tables(2, "type = \"ddp\"", "") + observer, &watch);
    const SlotTimes pair = slots;
    scalings.push_back(std::min(before, bench::product_scaling(registry, host, products)));
    ratios.push_back(bench::median(pair.applied) / bench::median(alone.applied));
    processor.push_back(bench::median(pair.processor) / bench::median(alone.processor));
    if (scalings.back() >= 1.8) undisturbed.push_back(ratios.back());
  }
  fmt::print(
      "ddp of 2 ranks with a thread each, GPT of {} layers, width {}, context {}, batch {} per rank: a step "
      "takes\n"
      "  {} times that of one rank, and its thread {} times the processor time;\n"
      "  products of two threads at once are {} times one thread's\n",
      shape.layers, shape.width, shape.context, shape.batch, bench::spread(ratios), bench::spread(processor),
      bench::spread(scalings));
  if (!undisturbed.empty())
    fmt::print("  in the {} rounds in which that was 1.8 or more, before and after: {}\n", undisturbed.size(),
               bench::spread(undisturbed));
}

void mixing(const Settings& settings) {
  const bench::GptShape shape = bench::study_shape();
  Settings one = settings;
  one.threads = 1;
  one.steps = 60;
  std::vector<double> shares;
  for (int round = 0; round < settings.rounds; ++round) {
    const std::string observer = "[[observe]]\ntype = \"bench_slots\"\n";
    const RunResult result = train(
        bench::config_text(shape, "type = \"fp32\"", one) +
            parallel_tables(2, "type = \"palsgd\"\nwarmup = 0\ninterval = 1000\np = 0.5", "") + observer,
        &watch);
    if (result.bytes_by_purpose.count("parameter") > 0)
      fail_run("palsgd sent parameters between its sync rounds");
    shares.push_back(100 * bench::median(slots.mixed) / bench::median(slots.applied));
  }
  fmt::print(
      "palsgd, GPT-Neo of 8 layers, width 128, bytes as tokens, batch 8 x 64: a mixing slot takes\n"
      "  {} % of a gradient slot and sends 0 bytes\n",
      bench::spread(shares));
}

/// Sets the link's bandwidth so that the all-reduce of all gradients takes half of a backward. The modelled
/// link sleeps and uses no processor; the summation that it represents does.
void overlap(const Settings& settings) {
  GptShape shape;
  shape.batch = 4;
  Settings one = settings;
  one.threads = 1;
  const std::string base = bench::config_text(shape, "type = \"fp32\"", one);
  std::vector<double> hidden, backward_share;
  for (int round = 0; round < settings.rounds; ++round) {
    const RunResult free = train(base + parallel_tables(2, "type = \"ddp\"\nbucket_mb = 1", ""), nullptr);
    const RankTime& time = free.communication.at(0);
    const double backward = time.compute_s / one.steps * 2 / 3;
    const double bytes = static_cast<double>(time.purposes.at("gradient").bytes_sent) / one.steps;
    const std::string link = fmt::format("link = {{bandwidth = {:.0f}}}\n", bytes / (backward / 2));
    const auto exposed = [&](const std::string& strategy) {
      const RunResult run = train(base + parallel_tables(2, strategy, link), nullptr);
      const LinkCounts& gradient = run.communication.at(0).purposes.at("gradient");
      return (gradient.blocked_seconds - gradient.late_seconds) / one.steps;
    };
    const double with = exposed("type = \"ddp\"\nbucket_mb = 1");
    const double without =
        exposed("type = \"ddp\"\nbucket_mb = 4096");  // one bucket, complete with the last gradient
    hidden.push_back(100 * (without - with) / without);
    backward_share.push_back(without / backward);
  }
  fmt::print(
      "overlap, GPT of {} layers, width {}, context {}, batch {} per rank, buckets of 1 MiB: an all-reduce\n"
      "  of {} of a backward, {} % of it hidden\n",
      shape.layers, shape.width, shape.context, shape.batch, bench::spread(backward_share),
      bench::spread(hidden));
}

int run(const Settings& settings) {
  Registry registry;
  registry.discover({});
  testing::QuietHost host;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  all_reduce(settings, registry, host);
  if (settings.steps == 0) return 0;
  mixing(settings);
  data_parallel(settings, registry, host);
  overlap(settings);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program("communication", argc, argv, {}, run);
}
