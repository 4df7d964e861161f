// tenon export on whole runs: names, layout, conversion, choice of the checkpoint, and refusals.
#include "run_program.hpp"

#include "store/safetensors.hpp"

#include <tenon/testing/tensors.hpp>

namespace tenon::integration::export_test {
namespace {

using ::testing::HasSubstr;

SafetensorsReader open(const fs::path& path) {
  return SafetensorsReader(make_posix_files()->open(path.string()), path.string());
}

std::vector<double> values(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsEntry& entry = reader.at(name);
  return tenon::testing::to_doubles(entry.dtype.value(), reader.read_all(entry));
}

TEST(Export, WritesTheWeightsUnderTheirNames) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  const Ended ended = scratch.run({"export", "runs/tiny", "--out", "hf/model.safetensors", "--json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\"step\": 6"));
  EXPECT_THAT(ended.out, HasSubstr("\"config.json\": \"hf/config.json\""));
  const SafetensorsReader out = open(scratch / "hf/model.safetensors");
  EXPECT_EQ(out.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(out.at("transformer.wte.weight").shape, (std::vector<std::int64_t>{256, 16}));
  EXPECT_EQ(out.at("transformer.wpe.weight").shape, (std::vector<std::int64_t>{16, 16}));
  EXPECT_EQ(out.at("transformer.h.0.attn.attention.q_proj.weight").shape,
            (std::vector<std::int64_t>{16, 16}));
  EXPECT_EQ(out.at("transformer.h.0.mlp.c_fc.weight").shape, (std::vector<std::int64_t>{64, 16}));
  EXPECT_EQ(out.find("lm_head.weight"), nullptr) << "the head is the embedding";

  // The bytes are those of the checkpoint.
  fs::path stored;
  for (const auto& entry : fs::directory_iterator(scratch / "runs/tiny/latest/checkpoints/step-6")) {
    if (entry.path().extension() == ".safetensors") stored = entry.path();
  }
  const SafetensorsReader checkpoint = open(stored);
  for (const SafetensorsEntry& entry : out.entries())
    EXPECT_EQ(out.read_all(entry), checkpoint.read_all(checkpoint.at("replica0/model/" + entry.name)))
        << entry.name;

  const std::string config = read_file(scratch / "hf/config.json");
  for (const char* line : {"\"model_type\": \"gpt_neo\"", "\"vocab_size\": 256",
                           "\"max_position_embeddings\": 16", "\"hidden_size\": 16", "\"num_layers\": 1",
                           "\"attention_types\": [[[\"global\"], 1]]", "\"intermediate_size\": 64",
                           "\"activation_function\": \"gelu_new\"", "\"layer_norm_epsilon\": 1e-05"}) {
    EXPECT_THAT(config, HasSubstr(line));
  }
}

// An edited graph is no GPT-Neo that config.json could describe.
TEST(Export, OfAnEditedModelWritesWeightsAlone) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train({"--set", "model.override=[{match = \"*.ln_1\", type = \"rms_norm\"}]"}).status, 0);
  const auto before = tree(scratch.folder());
  const Ended ended = scratch.run({"export", "runs/tiny", "--out", "hf/model.safetensors"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("without config.json: the graph was edited ([[model.override]]), so it may no "
                        "longer be one that those files describe"));
  EXPECT_EQ(changes(scratch.folder(), before), std::vector<std::string>{"hf/model.safetensors"});
  const Ended json =
      scratch.run({"export", "runs/tiny", "--out", "hf/model.safetensors", "--json", "--overwrite"});
  EXPECT_THAT(json.out, HasSubstr("\"without\": \"config.json: the graph was edited"));
}

TEST(Export, RoundsToBf16AndFoldsTheScaleOfLogits) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train({"--set", "model.scale_logits=true"}).status, 0);
  ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "a/model.safetensors"}).status, 0);
  ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "b/model.safetensors", "--dtype", "bf16"}).status,
            0);
  const SafetensorsReader single = open(scratch / "a/model.safetensors"),
                          half = open(scratch / "b/model.safetensors");
  for (const SafetensorsEntry& entry : single.entries()) {
    EXPECT_EQ(half.at(entry.name).file_dtype, "BF16");
    const auto wide = values(single, entry.name), narrow = values(half, entry.name);
    for (std::size_t i = 0; i < wide.size(); ++i)
      ASSERT_LE(std::abs(narrow[i] - wide[i]), std::abs(wide[i]) / 256) << entry.name << " " << i;
  }
  fs::path stored;
  for (const auto& entry : fs::directory_iterator(scratch / "runs/tiny/latest/checkpoints/step-6")) {
    if (entry.path().extension() == ".safetensors") stored = entry.path();
  }
  const std::string query = "transformer.h.0.attn.attention.q_proj.weight";
  auto kept = values(open(stored), "replica0/model/" + query);
  for (double& w : kept) w = static_cast<float>(w / std::sqrt(8.0));  // width 16, 2 heads
  EXPECT_EQ(values(single, query), kept);
}

TEST(Export, TakesTheNewestValidCheckpointOrTheOneAskedFor) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  for (const auto& entry : fs::directory_iterator(scratch / "runs/tiny/latest/checkpoints/step-6")) {
    if (entry.path().extension() != ".safetensors") continue;
    std::string bytes = read_file(entry.path());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_file(entry.path(), bytes);
  }
  const auto before = tree(scratch / "runs");
  const Ended older = scratch.run({"export", "runs/tiny", "--out", "model.safetensors", "--json"});
  EXPECT_EQ(older.status, 0) << older.err;
  EXPECT_THAT(older.out, HasSubstr("\"step\": 4"));
  EXPECT_THAT(older.err, HasSubstr("checkpoint step-6 is passed over"));
  EXPECT_TRUE(changes(scratch / "runs", before).empty()) << "a reader moves nothing";
  const Ended damaged = scratch.run({"export", "runs/tiny", "--out", "b/m.safetensors", "--step", "6"});
  EXPECT_EQ(damaged.status, 1);
  EXPECT_FALSE(fs::exists(scratch / "b"));
}

std::vector<std::string> names(const SafetensorsReader& reader) {
  std::vector<std::string> result;
  for (const SafetensorsEntry& entry : reader.entries()) result.push_back(entry.name);
  std::sort(result.begin(), result.end());
  return result;
}

TEST(Export, FindsWeightsThatReplicasShare) {
  const Scratch alone, two;
  ASSERT_EQ(alone.train().status, 0);
  ASSERT_EQ(
      two.train({"--set", "parallel.ranks=2", "--set", "transport.type=thread", "--set", "sync.type=ddp"})
          .status,
      0);
  for (const Scratch* scratch : {&alone, &two})
    ASSERT_EQ(scratch->run({"export", "runs/tiny", "--out", "m/model.safetensors"}).status, 0);
  EXPECT_EQ(names(open(two / "m/model.safetensors")), names(open(alone / "m/model.safetensors")));
}

TEST(Export, GivesAModelWithoutConventionsItsOwnNames) {
  const Scratch scratch;
  const std::string digits = std::string(TENON_SOURCE_DIR) + "/data/mnist/t10k-";
  std::string toml = Scratch::kRun;
  const auto begin = toml.find("[data]"), end = toml.find("[optimizer]");
  toml = toml.substr(0, begin) + "[data]\ntype = \"mnist\"\nimages = \"" + digits +
         "images-idx3-ubyte.gz\"\nlabels = \"" + digits +
         "labels-idx1-ubyte.gz\"\nimage_field = \"inputs\"\nlabel_field = \"targets\"\n\n[model]\ntype = "
         "\"mlp\"\nhidden = [8]\n\n" +
         toml.substr(end);
  write_file(scratch / "run.toml", toml);
  const Ended trained = scratch.train();
  ASSERT_EQ(trained.status, 0) << trained.err;
  const Ended ended = scratch.run({"export", "runs/tiny", "--out", "m/model.safetensors", "--step", "4"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("step 4 of runs/tiny/1"));
  const SafetensorsReader out = open(scratch / "m/model.safetensors");
  EXPECT_EQ(out.entries().size(), 4u) << "two matrices and two biases";
  for (const std::string& name : names(out)) {
    EXPECT_TRUE(name.ends_with(".weight") || name.ends_with(".bias")) << name;
  }
  EXPECT_FALSE(fs::exists(scratch / "m/config.json"));
}

TEST(Export, RefusesWhatItCannotDo) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "model.safetensors"}).status, 0);
  const std::string before = read_file(scratch / "model.safetensors");
  const struct {
    std::vector<std::string> words;
    int status;
    const char* says;
  } cases[] = {
      {{"export"}, 2, "tenon: tenon export: usage: tenon export RUN --out PATH [options]\n"},
      {{"export", "runs/tiny", "--out", "model.safetensors"},
       2,
       "tenon: tenon export: model.safetensors exists; choose another --out, or add --overwrite\n"},
      {{"export", "runs/tiny", "--out", "m.safetensors"},
       2,
       "tenon: tenon export: ./config.json exists; choose another --out, or add --overwrite\n"},
      {{"export", "runs/tiny", "--out", "m/m.safetensors", "--dtype", "f16"},
       2,
       "tenon: tenon export: --dtype is 'f16', expected f32 or bf16\n"},
      {{"export", "runs/tiny", "--out", "m/m.safetensors", "--step", "5"},
       2,
       "tenon: tenon export: runs/tiny/1 has no checkpoint of step 5; it has 4, 6\n"},
  };
  for (const auto& c : cases) {
    const Ended ended = scratch.run(c.words);
    EXPECT_EQ(ended.status, c.status) << c.says;
    EXPECT_EQ(ended.err, c.says);
  }
  EXPECT_EQ(scratch.run({"export", "runs/none", "--out", "m/m.safetensors"}).status, 2);
  EXPECT_EQ(scratch.run({"export", "runs/tiny", "--out", "model.safetensors", "--overwrite"}).status, 0);
  EXPECT_EQ(read_file(scratch / "model.safetensors"), before) << "the same run is the same file";
}

}  // namespace
}  // namespace tenon::integration::export_test
