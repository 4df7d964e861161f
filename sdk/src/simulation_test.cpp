// The folder of a simulation: its manifest to text and back, refusals with their texts, and digests.
#include "store/testing/memory_files.hpp"

#include <tenon/sdk/npy.hpp>
#include <tenon/sdk/simulation.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace tenon {
namespace {

using ::testing::HasSubstr;

SimulationManifest example() {
  SimulationManifest manifest;
  manifest.simulator = "darcy";
  manifest.plugin = "tenon.porous";
  manifest.plugin_version = "0.1.0";
  manifest.config = "[simulator]\ntype = \"darcy\"\n";
  manifest.seed = 7;
  manifest.samples = 5;
  manifest.fields = {{"a", DType::kF32, Shape{1, 4, 4}, false}, {"u", DType::kF64, Shape{1, 4, 4}, true}};
  manifest.shared = {{"amplitudes", DType::kF64, Shape{4, 4}, false}};
  manifest.finished = {{0, std::string(32, '0')}, {3, "0123456789abcdef0123456789abcdef"}};
  manifest.failed = {{1, {"error", "step 3: \"nan\"\nin the pressure", 1}}, {4, {"lost", "signal 9", 3}}};
  return manifest;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  try {
    parse_simulation_manifest(text, "sims/a/manifest.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  ADD_FAILURE() << "was taken:\n" << text;
  return "";
}

TEST(SimulationManifest, SurvivesARoundTrip) {
  const SimulationManifest manifest = example();
  const std::string text = simulation_manifest_text(manifest);
  const SimulationManifest again = parse_simulation_manifest(text, "test");
  EXPECT_EQ(simulation_manifest_text(again), text);
  EXPECT_EQ(again.finished, manifest.finished);
  EXPECT_EQ(again.failed.at(1).cause, "step 3: \"nan\"\nin the pressure");
  EXPECT_EQ(again.failed.at(4).attempts, 3);
  EXPECT_EQ(again.fields.at(1).shape, (Shape{1, 4, 4}));
  EXPECT_TRUE(again.fields.at(1).target);
  EXPECT_EQ(again.seed, 7u);
}

TEST(SimulationManifest, IsCompleteWhenEverySampleIsSettled) {
  SimulationManifest manifest = example();
  EXPECT_FALSE(manifest.complete());
  manifest.finished[2] = std::string(32, '1');
  EXPECT_TRUE(manifest.complete());
}

TEST(SimulationManifest, HashCoversWhatDecidesTheBytes) {
  const std::string hash = example().config_hash();
  SimulationManifest other = example();
  other.samples = 50;
  other.finished.clear();
  EXPECT_EQ(other.config_hash(), hash);
  other.seed = 8;
  EXPECT_NE(other.config_hash(), hash);
  other = example();
  other.config += " ";
  EXPECT_NE(other.config_hash(), hash);
  other = example();
  other.plugin_version = "0.1.1";
  EXPECT_NE(other.config_hash(), hash);
  other = example();
  other.fields[0].dtype = DType::kF64;
  EXPECT_NE(other.config_hash(), hash);
}

TEST(SimulationManifest, SaysWhatIsWrong) {
  const std::string good = simulation_manifest_text(example());
  const struct {
    const char *from, *to, *words;
  } cases[] = {
      {"\"version\": 1", "\"version\": 2", "manifest.version is 2; this program reads 1"},
      {"tenon.simulation", "tenon.checkpoint", "manifest.format must be tenon.simulation"},
      {"\"seed\"", "\"sead\"", "lacks 'seed'"},
      {"\"seed\": 7", "\"seed\": 7,\n\"chunk\": 4", "has the key 'chunk', which this program does not know"},
      {"\"seed\": 7", "\"seed\": -7", "manifest.seed must be a whole number from 0"},
      {"\"seed\": 7", "\"seed\": 8",
       "config_sha256 does not fit the rest, so the file was edited or is damaged"},
      {"\"name\": \"a\"", "\"name\": \"../a\"", "manifest.fields[0] has a name other than"},
      {"\"name\": \"u\"", "\"name\": \"a\"", "manifest.fields[1] is a second 'a'"},
      {"\"target\"", "\"output\"", "must be input or target"},
      {"\"f32\"", "\"f3\"", "must be f32, f64, i32, i64 or u8"},
      {"[1, 4, 4]", "[1, 0, 4]", "manifest.fields[0].shape[1] must be at least 1"},
      {"[1, 4, 4]", "[4000000000, 4000000000, 4]", "has more than"},
      {"\"index\": 3", "\"index\": 0", "repeats sample 0"},
      {"\"index\": 1", "\"index\": 0", "repeats sample 0"},
      {"\"index\": 3", "\"index\": 5", "must be a whole number from 0 to 4"},
      {"0123456789abcdef", "0123456789ABCDEF", "must have 32 hexadecimal digits"},
      {"\"lost\"", "\"tired\"", "must be error, time or lost"},
      {"\"failed\": [", "\"failed\": [7, ", "must be an object"},
  };
  for (const auto& [from, to, words] : cases) {
    const std::string said = refusal(replaced(good, from, to));
    EXPECT_THAT(said, HasSubstr(words));
    EXPECT_THAT(said, HasSubstr("sims/a/manifest.json"));
  }
}

TEST(SimulationManifest, AnyCutIsRefused) {
  const std::string good = simulation_manifest_text(example());
  for (std::size_t length = 0; length + 2 < good.size(); ++length) refusal(good.substr(0, length));
}

TEST(SimulationFolder, SaysThatThereIsNoSimulation) {
  testing::MemoryFiles files;
  files.make_directories("/sims");
  try {
    read_simulation(files, "/sims");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no simulation in '/sims'"));
    EXPECT_THAT(error.what(), HasSubstr("tenon simulate CONFIG"));
  }
}

TEST(SimulationFolder, ReadsAndChecksArrays) {
  testing::MemoryFiles files;
  files.make_directories("/sims/samples/000003");
  const std::vector<SimulatedField> fields{{"a", DType::kF32, Shape{2}, false},
                                           {"u", DType::kF64, Shape{1}, true}};
  std::array<float, 2> a{1, 2};
  std::array<double, 1> u{3};
  const std::vector<TensorView> views{{a.data(), Shape{2}, DType::kF32}, {u.data(), Shape{1}, DType::kF64}};
  const std::string folder = simulation_sample_folder("/sims", 3);
  for (std::size_t i = 0; i < fields.size(); ++i)
    write_npy(files, simulation_array_path(folder, fields[i]), views[i]);
  std::array<float, 2> a_again{};
  std::array<double, 1> u_again{};
  read_simulation_arrays(files, folder, fields,
                         std::vector<TensorView>{{a_again.data(), Shape{2}, DType::kF32},
                                                 {u_again.data(), Shape{1}, DType::kF64}});
  EXPECT_EQ(a_again, a);
  EXPECT_EQ(u_again, u);
  EXPECT_EQ(simulation_digest(views),
            xxh3_128_of(std::as_bytes(std::span("\0\0\x80\x3f\0\0\0\x40\0\0\0\0\0\0\x08\x40", 16))));

  std::vector<SimulatedField> others = fields;
  others[1].shape = Shape{2};
  try {
    check_simulation_arrays(files, folder, others);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("u.npy': expected f64 [2], found f64 [1]"));
  }
}

}  // namespace
}  // namespace tenon
