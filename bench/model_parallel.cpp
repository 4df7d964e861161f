// The gain from a second rank if a field is sharded in two: a stack of convolutions with halo exchanges and a
// Fourier operator over slabs, one thread a rank, the same problem on one rank and on two, in turns. Bytes
// that a rank sends in an update, counted and by formula; and how much of the exchanges of a slow link
// `overlap` hides. Usage: model_parallel [--rounds N] [--steps N]
#include "data_sets.hpp"
#include "product_scaling.hpp"

#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

namespace {

using namespace tenon;
using bench::Settings;

constexpr std::int64_t kBatch = 8, kLayers = 4;
/// Sizes of the convolutions, and of the Fourier operator.
constexpr std::int64_t kPoints = 96, kFeatures = 32, kGridPoints = 64, kWidth = 32, kModes = 12;

/// Convolutions of 3 x 3 with ReLU, followed by one with a single feature.
class Convolutions final : public Model {
 public:
  static constexpr ComponentInfo kInfo{.id = "convolutions", .summary = "a stack of convolutions of fields"};
  explicit Convolutions(const Options&) {}
  GraphSpec build(const DataInfo&) override {
    GraphSpec graph;
    std::string value = "x";
    for (std::int64_t i = 0; i <= kLayers; ++i) {
      const std::string name = fmt::format("conv{}", i);
      graph.nodes.push_back({name,
                             "conv2d",
                             {value},
                             {{"features", i < kLayers ? kFeatures : std::int64_t{1}},
                              {"kernel", std::vector<std::int64_t>{3}},
                              {"padding", std::vector<std::int64_t>{1}}}});
      value = name;
      if (i == kLayers) break;
      graph.nodes.push_back({name + ".act", "relu", {value}, {}});
      value = name + ".act";
    }
    graph.nodes.push_back({"loss", "relative_l2", {value, "y"}, {{"metric", std::string("loss")}}});
    return graph;
  }
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(fields,
                    PluginInfo{
                        .id = "bench.fields", .version = "1.0.0", .summary = "fields that are sharded"},
                    bench::RandomFields, Convolutions)

std::string common(const Settings& settings, std::int64_t points) {
  return fmt::format(R"([run]
name = "bench"
steps = {}
log_every = {}
eval_batches = 1
[device]
type = "cpu"
threads = 1
[precision]
type = "fp32"
[optimizer]
type = "adamw"
[data]
type = "random_fields"
points = [{}, {}]
batch = {}
)",
                     settings.steps, std::max(1, settings.steps / 2), points, points, kBatch);
}

/// Height sharded in two; `link` is a table, or nothing.
std::string over_two(const std::string& link) {
  std::string text = fmt::format("[parallel]\ngrid = [2]\n[transport]\ntype = \"thread\"\n{}", link);
  for (const char* value : {"x", "y"})
    text += fmt::format(
        "[[model.insert]]\nafter = \"{}\"\nname = \"part_of_{}\"\ntype = \"repartition\"\ndims = [2]\naxes = "
        "[0]\n",
        value, value);
  return text;
}

std::string convolutions(const Settings& settings) {
  return common(settings, kPoints) + "[model]\ntype = \"convolutions\"\n";
}

std::string as_parts(bool overlap) {
  std::string text;
  for (std::int64_t i = 0; i <= kLayers; ++i)
    text += fmt::format(
        "[[model.override]]\nmatch = \"conv{}\"\ntype = \"conv\"\nfeatures = {}\nkernel = [3]\npadding = "
        "[1]\n"
        "overlap = {}\n",
        i, i < kLayers ? kFeatures : 1, overlap);
  return text;
}

std::string fourier(const Settings& settings) {
  return common(settings, kGridPoints) +
         fmt::format("[model]\ntype = \"fno\"\nwidth = {}\nmodes = [{}]\n", kWidth, kModes);
}
constexpr const char* kSlabs = "[[model.override]]\nmatch = \"*.spectral\"\nform = \"slab\"\n";

/// Bytes that rank 0 sends in an update for the mesh: the difference of two runs.
double bytes_of_an_update(const std::function<std::string(const Settings&)>& config,
                          const Settings& settings) {
  double bytes[2];
  for (int more = 0; more < 2; ++more) {
    Settings length = settings;
    length.steps = 2 + more;
    const RunResult run = bench::train(config(length), &fields);
    bytes[more] = static_cast<double>(run.communication.at(0).purposes.at("model").bytes_sent);
  }
  return bytes[1] - bytes[0];
}

/// In an all-reduce over two ranks, each sends the half that the other one sums, and its own summed half: the
/// whole tensor once.
constexpr std::int64_t sums(std::int64_t elements) {
  return 4 * elements;
}

/// Four numbers of each sample, in f64, for a relative error forward, and again for that of the trained one
/// backward.
constexpr std::int64_t errors(std::int64_t times) {
  return times * 4 * 8 * kBatch;
}

/// A line of halos per convolution: of x forward, and in backward of the gradients that the other rank's
/// points need; the first convolution's x needs none. Gradients of weights are summed.
std::int64_t conv_bytes() {
  std::int64_t halos = 0, weights = 0;
  for (std::int64_t i = 0; i <= kLayers; ++i) {
    const std::int64_t in = i == 0 ? 1 : kFeatures, out = i < kLayers ? kFeatures : 1;
    halos += kBatch * kPoints * 4 * (in + (i > 0 ? out : 0));
    weights += out * in * 9 + out;
  }
  return halos + sums(weights) + errors(2);
}

/// Four moves of a layer, each of which sends half of the rank's half; complex numbers; and the sums.
std::int64_t fourier_bytes() {
  const std::int64_t moves = 4 * kLayers * 8 * kBatch * kWidth * kModes * kGridPoints / 4;
  const std::int64_t weights =
      kWidth * 3 + kWidth + kLayers * (kWidth * kWidth + kWidth) + 128 * kWidth + 128 + 128 + 1;
  return moves + sums(weights) + errors(3);
}

void efficiency(const char* title, const std::string& one,
                const std::vector<std::pair<const char*, std::string>>& two, const Settings& settings,
                Registry& registry, Host& host) {
  std::vector<std::vector<double>> all(two.size()), undisturbed(two.size());
  std::vector<double> scalings;
  for (int round = 0; round < settings.rounds; ++round) {
    const double before = bench::product_scaling(registry, host, {});
    const double alone = bench::our_rate(one, "train/samples_per_s", &fields);
    std::vector<double> of_round;
    for (const auto& [name, config] : two)
      of_round.push_back(100 * bench::our_rate(config, "train/samples_per_s", &fields) / alone / 2);
    scalings.push_back(std::min(before, bench::product_scaling(registry, host, {})));
    for (std::size_t i = 0; i < two.size(); ++i) {
      all[i].push_back(of_round[i]);
      if (scalings.back() >= 1.8) undisturbed[i].push_back(of_round[i]);
    }
  }
  fmt::print("{}, batch {}: efficiency of two ranks with a thread each\n", title, kBatch);
  for (std::size_t i = 0; i < two.size(); ++i) {
    fmt::print("  {}{} %", two[i].first, bench::spread(all[i]));
    if (!undisturbed[i].empty())
      fmt::print("; in the {} rounds in which two threads multiplied 1.8 times as fast as one: {} %",
                 undisturbed[i].size(), bench::spread(undisturbed[i]));
    fmt::print("\n");
  }
  fmt::print("  products of two threads at once were {} times one thread's\n", bench::spread(scalings));
}

void bytes(const char* title, double counted, std::int64_t formula) {
  fmt::print("{}: rank 0 sends {:.0f} bytes in an update, {} by formula\n", title, counted, formula);
}

/// The link's time for a layer's halos is about that of its products.
void overlap(const Settings& settings) {
  std::vector<double> hidden, share;
  for (int round = 0; round < settings.rounds; ++round) {
    const RunResult free = bench::train(convolutions(settings) + over_two("") + as_parts(false), &fields);
    const double compute = free.communication.at(0).compute_s / settings.steps;
    const std::string link =
        fmt::format("link = {{bandwidth = {:.0f}}}\n", static_cast<double>(conv_bytes()) / (compute / 2));
    const auto exposed = [&](bool with) {
      const RunResult run = bench::train(convolutions(settings) + over_two(link) + as_parts(with), &fields);
      const LinkCounts& model = run.communication.at(0).purposes.at("model");
      return (model.blocked_seconds - model.late_seconds) / settings.steps;
    };
    const double without = exposed(false), with = exposed(true);
    hidden.push_back(100 * (without - with) / without);
    share.push_back(without / compute);
  }
  fmt::print(
      "overlap, convolutions over a link on which waiting takes {} of the computing: {} % of it hidden\n",
      bench::spread(share), bench::spread(hidden));
}

int run(const Settings& settings) {
  Registry registry;
  registry.discover({});
  testing::QuietHost host;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string two = over_two("");
  bytes("convolutions",
        bytes_of_an_update([&](const Settings& s) { return convolutions(s) + two + as_parts(false); },
                           settings),
        conv_bytes());
  bytes("FNO", bytes_of_an_update([&](const Settings& s) { return fourier(s) + two + kSlabs; }, settings),
        fourier_bytes());
  efficiency(fmt::format("{} convolutions of 3 x 3 over {} x {} points, {} features", kLayers + 1, kPoints,
                         kPoints, kFeatures)
                 .c_str(),
             convolutions(settings),
             {{"", convolutions(settings) + two + as_parts(false)},
              {"with overlap: ", convolutions(settings) + two + as_parts(true)}},
             settings, registry, host);
  efficiency(
      fmt::format("FNO over {} x {} points, width {}, {} modes", kGridPoints, kGridPoints, kWidth, kModes)
          .c_str(),
      fourier(settings), {{"", fourier(settings) + two + kSlabs}}, settings, registry, host);
  overlap(settings);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_program("model_parallel", argc, argv, {.steps = 16}, run);
}
