// The volumes of 6.3, counted where bytes leave: a Fourier operator over slabs on 1, 2, 4 and 8 ranks, all of
// whose bytes of an update equal the closed forms that `tenon reproduce fno-scaling` extrapolates to 512.
#include "mesh_runs.hpp"

#include "reproduce/slabs.hpp"

#include <tenon/files.hpp>
#include <tenon/sdk/npy.hpp>

#include <fmt/format.h>

namespace tenon::integration::slab_bytes_test {
namespace {

constexpr std::int64_t kLayers = 4;  // the model's default, as projection = 128

/// A field X Y Z T, sharded along Y into parts of 3 and 2; 10 modes of X, not as many for each rank.
reproduce::SlabOperator small_operator() {
  return {.points = {12, 20, 6, 5},
          .modes = {5, 4, 2, 3},
          .sharded_dim = 1,
          .batch = 2,
          .width = 3,
          .layers = kLayers,
          .projection = 128};
}

/// Bytes of the purpose `model` by rank, from the start of the run to its end.
std::vector<double> model_bytes(const Scratch& scratch, std::int64_t ranks, int steps) {
  const std::string name = fmt::format("r{}s{}", ranks, steps);
  const Ended ended =
      scratch.run({"train",
                   TENON_SOURCE_DIR "/configs/base/fno_darcy.toml",
                   "--quiet",
                   "--run-dir",
                   name,
                   "--set",
                   fmt::format("run.steps={}", steps),
                   "--set",
                   "run.eval_every=0",
                   "--set",
                   "run.eval_batches=1",
                   "--set",
                   "device.threads=1",
                   "--set",
                   "data.inputs=[\"x=field.npy\"]",
                   "--set",
                   "data.targets=[\"y=field.npy\"]",
                   "--set",
                   "data.val_inputs=[]",
                   "--set",
                   "data.val_targets=[]",
                   "--set",
                   "data.shapes=[\"x=1x12x20x6x5\", \"y=1x12x20x6x5\"]",
                   "--set",
                   "data.batch=2",
                   "--set",
                   "data.val_fraction=0.34",
                   "--set",
                   "model.width=3",
                   "--set",
                   "model.modes=[5, 4, 2, 3]",
                   "--set",
                   "model.padding=[0]",
                   "--set",
                   "transport={type = \"thread\", clock = {type = \"simulated\", compute_seconds "
                   "= 0}}",
                   "--set",
                   fmt::format("parallel.grid=[{}]", ranks),
                   "--set",
                   "model.override=[{match = \"*.spectral\", form = \"slab\"}]",
                   "--set",
                   "model.insert=[{after = \"x\", name = \"spread\", type = \"repartition\", "
                   "dims = [3], axes = [0]}, {after = \"y\", name = \"targets\", type = "
                   "\"repartition\", dims = [3], axes = [0]}]"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  std::vector<double> bytes;
  const auto summary = nlohmann::json::parse(read_file(scratch / (name + "/latest/summary.json")));
  if (!summary.contains("communication")) return std::vector<double>(ranks, 0);
  for (const auto& rank : summary["communication"])
    bytes.push_back(rank["purposes"]["model"]["bytes_sent"].get<double>());
  return bytes;
}

/// Bytes of one update: those of two further updates, halved.
std::vector<double> of_an_update(const Scratch& scratch, std::int64_t ranks) {
  std::vector<double> more = model_bytes(scratch, ranks, 4);
  const std::vector<double> less = model_bytes(scratch, ranks, 2);
  for (std::size_t i = 0; i < more.size(); ++i) more[i] = (more[i] - less.at(i)) / 2;
  return more;
}

TEST(SlabBytes, P11_VolumesOfSlabsAreCountedAsTheClosedFormsSay) {
  const Scratch scratch;
  std::vector<float> values(3 * 12 * 20 * 6 * 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) - 8;
  write_npy(*make_posix_files(), (scratch / "field.npy").string(),
            {values.data(), Shape{3, 12, 20, 6, 5}, DType::kF32, MemorySpace::kHost});
  const reproduce::SlabOperator op = small_operator();
  // B C (2kx ny 2kz kt) complex numbers in all; those whose rank is the same in both shardings stay.
  EXPECT_EQ(reproduce::move_elements(op, 2), 2 * 3 * 10 * 20 * 4 * 3 / 2);
  constexpr std::int64_t kWeights = 5 * 3 + 3 + kLayers * (3 * 3 + 3) + 3 * 128 + 128 + 128 + 1;
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    SCOPED_TRACE(ranks);
    const std::vector<double> counted = of_an_update(scratch, ranks);
    ASSERT_EQ(counted.size(), static_cast<std::size_t>(ranks));
    double all = 0;
    for (const double bytes : counted) all += bytes;
    // Two moves of a layer forward and two backward; a sum over ranks sends twice what all but one hold;
    // three sums of 4 numbers per sample.
    const std::int64_t moves = 4 * kLayers * 8 * reproduce::move_elements(op, ranks),
                       sums = (ranks - 1) * (2 * 4 * kWeights + 3 * 2 * 8 * 4 * op.batch);
    EXPECT_EQ(all, static_cast<double>(moves + sums));
    const auto list = reproduce::exchanges(op, ranks);
    EXPECT_EQ(counted.front(),
              static_cast<double>(reproduce::bytes_of_first(list) - reproduce::bytes_of_first(list, "norm")));
  }
}

}  // namespace
}  // namespace tenon::integration::slab_bytes_test
