// tenon import and export as a user starts them, on checkpoints that transformers wrote (tests/reference/hf):
// logits against PyTorch's in float64, the same bytes on the way back, round trips of trained runs, and every
// folder that is refused.
#include "run_program.hpp"

#include "models/model_folder.hpp"
#include "reference/recorded.hpp"
#include "store/safetensors.hpp"

#include <tenon/sdk/outside_training.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>
#include <tenon/testing/tensors.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace tenon::integration::import_test {
namespace {

using nlohmann::json;
using tenon::testing::Bench;
using tenon::testing::HarnessSpec;
using tenon::testing::LayerHarness;
using tenon::testing::Recorded;
using tenon::testing::TestField;
using ::testing::HasSubstr;

constexpr const char* kCheckpoints[] = {"llama",      "llama_tied", "phi3",         "gpt_neo",
                                        "nemotron_h", "mamba2",     "mamba2_groups"};

fs::path fixture(const std::string& name) {
  return fs::path(TENON_SOURCE_DIR) / "tests/reference/hf" / name;
}

struct StoredValue {
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  bool operator==(const StoredValue&) const = default;
};
std::ostream& operator<<(std::ostream& out, const StoredValue& value) {
  return out << value.type << " of " << value.bytes.size() << " bytes";
}

/// Tensors of all weights files of a folder.
std::map<std::string, StoredValue> weights_of(const fs::path& folder) {
  std::map<std::string, StoredValue> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("model") || !name.ends_with(".safetensors")) continue;
    const SafetensorsReader reader(make_posix_files()->open(entry.path()), name);
    for (const SafetensorsEntry& tensor : reader.entries())
      EXPECT_TRUE(
          found.emplace(tensor.name, StoredValue{tensor.file_dtype, tensor.shape, reader.read_all(tensor)})
              .second)
          << tensor.name << " twice";
  }
  return found;
}

json json_of(const Ended& ended) {
  EXPECT_EQ(ended.status, 0) << ended.err;
  return json::parse(ended.out, nullptr, false);
}

/// Logits of the model in a folder for tokens, in f32 on plain loops.
std::vector<double> logits_of(const fs::path& folder, const std::vector<double>& tokens) {
  const auto time = static_cast<std::int64_t>(tokens.size());
  Bench bench("cpu", "reference", 1);
  const auto files = make_posix_files();
  models::ModelFolder model(*files, bench.registry, bench.host, folder.string());
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {time}}, {"targets", DType::kI32, {time}}};
  data.attributes = model.description().attributes;
  auto* language = static_cast<LanguageModel*>(model.query(LanguageModel::kId));
  if (language == nullptr) fail_run("no language model");
  const LanguageGraph graph = language->language_graph(data);
  const auto precision = bench.make_component<Precision>("fp32", "");
  HarnessSpec spec;
  spec.layers = bench.layers.get(), spec.device = &*bench.device, spec.host = &bench.host;
  spec.precision = &*precision, spec.training = false;
  LayerHarness harness(spec, graph.graph.nodes, {}, {TestField{"tokens", {1, time}, DType::kI32, tokens}});
  EXPECT_EQ(harness.executor().parameters().size(), model.parameters().size());
  for (const StoredTensor& tensor : model.parameters()) {
    std::vector<std::byte> bytes(dtype_bytes(tensor.dtype, tensor.shape.elements()));
    Shape origin = tensor.shape;
    for (int dim = 0; dim < origin.rank(); ++dim) origin[dim] = 0;
    model.read(tensor.name, origin, {bytes.data(), tensor.shape, tensor.dtype});
    harness.set_parameter(tensor.name, tenon::testing::to_doubles(tensor.dtype, bytes));
  }
  RunSpec run;
  run.training = false;
  harness.forward(run);
  return harness.value(graph.logits);
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

class Checkpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(Checkpoint, GivesTheLogitsOfPyTorchAndGoesBackToEqualBytes) {
  const std::string name = GetParam();
  const Scratch scratch;
  const json result = json_of(scratch.run({"import", fixture(name).string(), "-o", "model", "--json"}));
  const Recorded expected("hf/" + name + "/expected");
  const std::vector<double> logits = expected.values("logits");
  EXPECT_LT(largest_difference(logits_of(scratch / "model", expected.values("tokens")), logits), 1e-4);
  EXPECT_GT(*std::max_element(logits.begin(), logits.end()), 0.5) << "logits of which 1e-4 is a small part";

  ASSERT_EQ(scratch.run({"export", "model", "--out", "back/model.safetensors"}).status, 0);
  EXPECT_EQ(weights_of(scratch / "back"), weights_of(fixture(name)));
  const json sharded =
      json_of(scratch.run({"export", "model", "--out", "shards", "--max-shard", "7KiB", "--json"}));
  EXPECT_GT(sharded.at("shards").size(), 2U);
  EXPECT_EQ(weights_of(scratch / "shards"), weights_of(fixture(name)));
  for (const auto& shard : sharded.at("shards"))
    EXPECT_LT(fs::file_size(scratch / shard.at("file").get<std::string>()), 7 * 1024 + 2048);

  // What this program wrote is what transformers wrote, to the next import.
  for (const char* folder : {"back", "shards"}) {
    const std::string again = std::string("again_") + folder;
    const json second = json_of(scratch.run({"import", folder, "-o", again, "--json"}));
    EXPECT_EQ(second.at("weights_hash"), result.at("weights_hash")) << folder;
    EXPECT_EQ(second.at("architecture"), result.at("architecture"));
    EXPECT_EQ(read_file(scratch / again / "model.safetensors"),
              read_file(scratch / "model/model.safetensors"));
  }
}

INSTANTIATE_TEST_SUITE_P(Import, Checkpoint, ::testing::ValuesIn(kCheckpoints),
                         [](const auto& info) { return std::string(info.param); });

/// A copy of a fixture that a test changes.
class Changed {
 public:
  Changed(const Scratch& scratch, const std::string& name) : folder_(scratch / "hf") {
    fs::remove_all(folder_);
    fs::copy(fixture(name), folder_);
    fs::remove(folder_ / "expected.safetensors");
  }
  const fs::path& folder() const { return folder_; }
  json settings() const { return json::parse(read_file(folder_ / "config.json")); }
  void set(const std::string& key, const json& value) const {
    json changed = settings();
    if (value.is_null())
      changed.erase(key);
    else
      changed[key] = value;
    write_file(folder_ / "config.json", changed.dump());
  }
  /// Writes model.safetensors from these tensors.
  void write(const std::map<std::string, StoredValue>& tensors) const {
    std::vector<SafetensorsEntry> entries;
    for (const auto& [name, value] : tensors) {
      SafetensorsEntry& entry = entries.emplace_back();
      entry.name = name, entry.file_dtype = value.type, entry.shape = value.shape;
      entry.end = static_cast<std::int64_t>(value.bytes.size());
    }
    const auto file = make_posix_files()->create(folder_ / "model.safetensors");
    const std::string beginning = safetensors_beginning(entries, {});
    file->append(std::as_bytes(std::span(beginning)));
    for (const auto& [name, value] : tensors) file->append(value.bytes);
    file->close();
  }

 private:
  fs::path folder_;
};

// Settings that change no shape: with another value the logits are others, so that the above would notice it.
TEST(Import, ReadsEverySettingOfMambaThatChangesLogits) {
  const Scratch scratch;
  const struct {
    const char* fixture;
    std::map<std::string, json> settings;
  } cases[] = {
      {"nemotron_h", {{"time_step_min", 0.0}}},
      {"nemotron_h", {{"layer_norm_epsilon", 1e-2}}},
      {"nemotron_h", {{"n_groups", 1}, {"ssm_state_size", 16}}},
      {"mamba2_groups", {{"time_step_limit", {0.0, 0.05}}}},
      {"mamba2_groups", {{"time_step_limit", {0.01, {{"__float__", "Infinity"}}}}}},
      {"mamba2_groups", {{"n_groups", 2}, {"state_size", 16}}},
      {"mamba2_groups", {{"layer_norm_epsilon", 1e-5}}},
  };
  for (const auto& c : cases) {
    const Changed copy(scratch, c.fixture);
    for (const auto& [key, value] : c.settings) copy.set(key, value);
    fs::remove_all(scratch / "model");
    ASSERT_EQ(scratch.run({"import", "hf", "-o", "model"}).status, 0);
    const Recorded expected(std::string("hf/") + c.fixture + "/expected");
    const double difference = largest_difference(logits_of(scratch / "model", expected.values("tokens")),
                                                 expected.values("logits"));
    EXPECT_GT(difference, 1e-3) << c.fixture << " " << c.settings.begin()->first;
  }
}

TEST(Import, SaysWhatItFoundAndWithoutAFolderWritesNothing) {
  const Scratch scratch;
  const auto before = tree(scratch.folder());
  const Ended ended = scratch.run({"import", fixture("phi3").string()});
  ASSERT_EQ(ended.status, 0) << ended.err;
  for (const char* line :
       {"/phi3: Phi3ForCausalLM, 15 tensors in 3 files, F32\n", "type = \"decoder\"\n", "repeat = 2\n",
        "kv_heads = 2\n", "window = 5\n", "vocabulary = 67\n", "export_as = \"Phi3ForCausalLM\"\n",
        "21 parameters, 6064 elements in f32\n", "nothing is written: name a new folder with -o\n"})
    EXPECT_THAT(ended.out, HasSubstr(line));
  EXPECT_TRUE(changes(scratch.folder(), before).empty());
  ASSERT_EQ(scratch.run({"import", fixture("phi3").string(), "-o", "m"}).status, 0);
  const std::string made = read_file(scratch / "m/model.toml");
  EXPECT_THAT(made, HasSubstr("architecture = \"Phi3ForCausalLM\""));
  EXPECT_THAT(made, HasSubstr("importer = \"importer.decoder\""));
  const Ended again = scratch.run({"import", fixture("phi3").string(), "-o", "m"});
  EXPECT_EQ(again.status, 2);
  EXPECT_EQ(again.err, "tenon: tenon import: m exists, and nothing is written over; name another folder\n");
}

/// f32 elements as their upper halves, and the same elements without their lower halves.
std::pair<StoredValue, StoredValue> cut_to_bf16(const StoredValue& value) {
  StoredValue narrow{"BF16", value.shape, {}}, wide = value;
  for (std::size_t i = 0; i < value.bytes.size(); i += 4) {
    wide.bytes[i] = wide.bytes[i + 1] = std::byte{0};
    narrow.bytes.push_back(value.bytes[i + 2]);
    narrow.bytes.push_back(value.bytes[i + 3]);
  }
  return {narrow, wide};
}

TEST(Import, WidensBf16ToTheSameNumbersAndLeavesOutWhatFollows) {
  const Scratch scratch;
  const Changed copy(scratch, "gpt_neo");
  std::map<std::string, StoredValue> narrow, wide;
  for (const auto& [name, value] : weights_of(copy.folder())) {
    const auto [cut, same] = cut_to_bf16(value);
    narrow[name] = cut;
    wide[name] = same;
  }
  copy.write(wide);
  const json from_f32 = json_of(scratch.run({"import", "hf", "-o", "wide", "--json"}));
  narrow["lm_head.weight"] = narrow.at("transformer.wte.weight");
  narrow["transformer.h.1.attn.attention.bias"] = {"BOOL", {1}, {std::byte{1}}};
  copy.write(narrow);
  const json from_bf16 = json_of(scratch.run({"import", "hf", "-o", "narrow", "--json"}));
  EXPECT_EQ(from_bf16.at("weights_hash"), from_f32.at("weights_hash"));
  EXPECT_EQ(from_bf16.at("left_out"), "lm_head.weight, transformer.h.1.attn.attention.bias");
  EXPECT_EQ(weights_of(scratch / "narrow").begin()->second.type, "F32");
}

TEST(Import, RefusesSettingsThatTheModelCannotRepresent) {
  const Scratch scratch;
  const struct {
    const char* fixture;
    const char* key;
    json value;
    const char* says;
  } cases[] = {
      {"llama",
       "rope_parameters",
       {{"rope_type", "llama3"}, {"factor", 8.0}},
       "'rope_parameters.rope_type' is \"llama3\"; importer decoder supports \"default\""},
      {"llama", "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}, "'rope_scaling.type' is \"linear\""},
      {"llama", "rope_scaling", "linear", "expects a table of settings"},
      {"phi3", "partial_rotary_factor", 0.75, "'partial_rotary_factor' is 0.75; importer decoder supports 1"},
      {"llama", "hidden_act", "relu", "'hidden_act' is \"relu\"; importer decoder supports \"silu\" and"},
      {"llama", "attention_dropout", 0.1, "'attention_dropout' is 0.1; importer decoder supports 0"},
      {"llama", "quantization_config", {{"bits", 4}}, "supports weights that are not quantized"},
      {"llama", "hidden_size", nullptr, "'hidden_size' is missing; importer decoder expects a whole number"},
      {"llama", "hidden_size", -1, "'hidden_size' is -1; importer decoder supports whole numbers from 1 to"},
      {"llama", "hidden_size", "16", "'hidden_size' is \"16\"; importer decoder supports whole numbers"},
      {"llama", "num_hidden_layers", 100000, "repeat"},
      {"llama", "num_key_value_heads", 3, "'kv_heads' 3 does not divide 'heads' 4"},
      {"llama", "tie_word_embeddings", 1,
       "'tie_word_embeddings' is 1; importer decoder supports true and false"},
      {"phi3", "sliding_window", 0, "'sliding_window' is 0"},
      {"nemotron_h", "use_bias", true, "'use_bias' is true; importer decoder supports false"},
      {"nemotron_h", "use_conv_bias", false, "'use_conv_bias' is false; importer decoder supports true"},
      {"nemotron_h", "mamba_hidden_act", "relu", "'mamba_hidden_act' is \"relu\"; importer decoder supports"},
      {"nemotron_h", "mlp_hidden_act", "silu",
       "'mlp_hidden_act' is \"silu\"; importer decoder supports \"relu2\" and \"gelu_pytorch_tanh\""},
      {"nemotron_h", "layers_block_type", json::array({"linear_attention", "moe"}),
       "'layers_block_type' is [\"linear_attention\", \"moe\"]; importer decoder supports lists of"},
      {"nemotron_h", "layers_block_type", nullptr,
       "'layers_block_type' is missing; importer decoder expects"},
      {"nemotron_h", "num_nextn_predict_layers", 1, "'num_nextn_predict_layers' is 1"},
      {"nemotron_h", "tie_word_embeddings", true, "'tie_word_embeddings' is true"},
      {"nemotron_h", "sliding_window", 8,
       "'sliding_window' is 8; importer decoder supports attention to all"},
      {"nemotron_h", "mamba_n_groups", 2,
       "'mamba_n_groups' is 2; importer decoder supports the setting under"},
      {"nemotron_h", "hidden_dropout", 0.1, "'hidden_dropout' is 0.1; importer decoder supports 0"},
      {"nemotron_h", "time_step_min", -1.0,
       "'time_step_min' is -1.0; importer decoder supports numbers from 0"},
      {"nemotron_h", "n_groups", 4, "'mamba_heads' 6 is no multiple of 'mamba_groups' 4"},
      {"mamba2", "hidden_act", "gelu", "'hidden_act' is \"gelu\"; importer decoder supports \"silu\""},
      {"mamba2", "expand", 3, "'expand' 3 of 'hidden_size' 16 is not 'num_heads' 8 of 'head_dim' 4"},
      {"mamba2",
       "time_step_limit",
       {0.1},
       "'time_step_limit' is [0.1]; importer decoder supports two numbers"},
      {"mamba2", "time_step_limit", {-0.1, 1.0}, "'time_step_limit' is [-0.1, 1.0]"},
      {"mamba2", "time_step_limit", 1.0, "'time_step_limit' is 1.0"},
      {"gpt_neo", "attention_types", json::array({json::array({json::array({"global"}), 5000000000})}),
       "supports lists [kinds, repetitions] of \"global\" and \"local\", one kind per layer"},
      {"gpt_neo", "attention_types", json::array({json::array({json::array({"sliding"}), 2})}),
       "lists [kinds"},
      {"gpt_neo", "attention_types", json::array({json::array({json::array({"local"}), 1})}), "lists [kinds"},
      {"gpt_neo", "activation_function", "relu", "supports \"gelu_new\" and \"gelu\""},
      {"gpt_neo", "tie_word_embeddings", false, "supports true: the head is the embedding"},
      {"gpt_neo", "attention_dropout", 0.5, "supports 0: attention has no dropout"},
      {"gpt_neo", "embed_dropout", 0.5, "supports the probability of resid_dropout"},
  };
  for (const auto& c : cases) {
    const Changed copy(scratch, c.fixture);
    copy.set(c.key, c.value);
    const Ended ended = scratch.run({"import", "hf", "-o", "out"});
    EXPECT_EQ(ended.status, 2) << c.key << ": " << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(c.says)) << c.key;
    EXPECT_FALSE(fs::exists(scratch / "out")) << c.key;
  }
}

TEST(Import, ReadsSettingsAsEarlierVersionsWroteThem) {
  const Scratch scratch;
  const Changed copy(scratch, "llama");
  copy.set("rope_parameters", nullptr);
  copy.set("rope_theta", 500.0);
  json changed = copy.settings();
  changed["rope_scaling"] = nullptr;
  write_file(copy.folder() / "config.json", changed.dump());
  const Ended ended = scratch.run({"import", "hf"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("rope_base = 500.0\n"));
}

TEST(Import, ReadsPatternsOfNemotronAsEarlierVersionsWroteThem) {
  const Scratch scratch;
  const Changed copy(scratch, "nemotron_h");
  const Ended now = scratch.run({"import", "hf"});
  ASSERT_EQ(now.status, 0) << now.err;
  EXPECT_THAT(now.out, HasSubstr("pattern = \"M-MM*-M-\"\n"));
  copy.set("layers_block_type", {"mamba", "mlp", "mamba", "mamba", "attention", "mlp", "mamba", "mlp"});
  EXPECT_EQ(scratch.run({"import", "hf"}).out, now.out);
  copy.set("layers_block_type", nullptr);
  copy.set("hybrid_override_pattern", "M-MM*-M-");
  EXPECT_EQ(scratch.run({"import", "hf"}).out, now.out);
  copy.set("hybrid_override_pattern", "M-MME-M-");
  EXPECT_THAT(scratch.run({"import", "hf"}).err,
              HasSubstr("importer decoder supports the letters M, * and -"));
  // Python writes numbers that JSON does not have.
  copy.set("hybrid_override_pattern", "M-MM*-M-");
  std::string text = read_file(copy.folder() / "config.json");
  const std::string infinity = "{\"__float__\":\"Infinity\"}";
  ASSERT_NE(text.find(infinity), std::string::npos);
  write_file(copy.folder() / "config.json", text.replace(text.find(infinity), infinity.size(), "Infinity"));
  EXPECT_EQ(scratch.run({"import", "hf"}).out, now.out);
}

TEST(Import, RefusesFoldersThatAreNotWhole) {
  const Scratch scratch;
  using Change = std::function<void(const Changed&)>;
  const auto index_of = [](const Changed& copy) {
    return json::parse(read_file(copy.folder() / "model.safetensors.index.json"));
  };
  const auto set_index = [](const Changed& copy, const json& index) {
    write_file(copy.folder() / "model.safetensors.index.json", index.dump());
  };
  const std::string norm = "model.norm.weight", first = "model-00001-of-00003.safetensors",
                    third = "model-00003-of-00003.safetensors";
  const struct {
    const char* fixture;
    Change change;
    int status;
    std::vector<std::string> says;
  } cases[] = {
      {"llama",
       [](const Changed& c) { fs::remove(c.folder() / "config.json"); },
       2,
       {"hf has no config.json; expected a folder of Hugging Face"}},
      {"llama",
       [](const Changed& c) { write_file(c.folder() / "config.json", "{\"a\": 1,"); },
       2,
       {"hf/config.json: not valid JSON at byte "}},
      {"llama",
       [](const Changed& c) { write_file(c.folder() / "config.json", "{\"a\": 1, \"a\": 2}"); },
       2,
       {"hf/config.json: duplicate key 'a'"}},
      {"llama",
       [](const Changed& c) {
         write_file(c.folder() / "config.json", std::string(100, '[') + std::string(100, ']'));
       },
       2,
       {"hf/config.json: more than 64 levels"}},
      {"llama",
       [](const Changed& c) { c.set("architectures", nullptr); },
       2,
       {"expected 'architectures' with one name"}},
      {"llama",
       [](const Changed& c) { c.set("architectures", {"MambaForCausalLM"}); },
       2,
       {"no importer knows architecture MambaForCausalLM; known: LlamaForCausalLM (decoder), Phi3ForCausalLM "
        "(decoder), NemotronHForCausalLM (decoder), Mamba2ForCausalLM (decoder), GPTNeoForCausalLM "
        "(gpt_neo)"}},
      {"llama",
       [](const Changed& c) { fs::remove(c.folder() / "model.safetensors"); },
       2,
       {"hf has no weights: expected model.safetensors, or model.safetensors.index.json with its shards"}},
      {"llama",
       [](const Changed& c) { write_file(c.folder() / "model.safetensors.index.json", "{}"); },
       2,
       {"hf has model.safetensors and model.safetensors.index.json; expected one of them"}},
      {"llama",
       [](const Changed& c) { fs::resize_file(c.folder() / "model.safetensors", 20000); },
       1,
       {"hf/model.safetensors"}},
      {"phi3",
       [&](const Changed& c) { fs::remove(c.folder() / first), fs::remove(c.folder() / third); },
       2,
       {"files that it names are missing beside it: " + first + ", " + third}},
      {"phi3",
       [&](const Changed& c) {
         json index = index_of(c);
         index["weight_map"]["none.weight"] = first;
         set_index(c, index);
       },
       2,
       {"files lack tensors that it places there: none.weight (" + first + ")"}},
      {"phi3",
       [&](const Changed& c) {
         json index = index_of(c);
         index["weight_map"].erase(norm);
         set_index(c, index);
       },
       2,
       {"files hold tensors that it does not place there: " + norm + " (" + third + ")"}},
      {"phi3",
       [&](const Changed& c) {
         json index = index_of(c);
         index["weight_map"][norm] = "../" + third;
         set_index(c, index);
       },
       2,
       {"the file of tensor 'model.norm.weight' is \"../", "expected the name of a .safetensors file"}},
      {"phi3",
       [&](const Changed& c) {
         json index = index_of(c);
         index["weight_map"]["copy"] = "model-copy.safetensors";
         set_index(c, index);
         fs::copy(c.folder() / first, c.folder() / "model-copy.safetensors");
       },
       2,
       {"as well; expected it once"}},
      {"phi3",
       [&](const Changed& c) {
         set_index(c, {{"weight_map", json::object()}});
       },
       2,
       {"expected a table 'weight_map'"}},
      {"llama",
       [](const Changed& c) {
         std::map<std::string, StoredValue> tensors = weights_of(c.folder());
         tensors["model.layers.2.extra.weight"] = tensors.at("model.norm.weight");
         tensors["adapter"] = tensors.at("model.norm.weight");
         tensors.at("lm_head.weight").shape = {16, 67};
         StoredValue& double_norm = tensors.at("model.layers.0.input_layernorm.weight");
         double_norm.type = "F64";
         double_norm.bytes.resize(2 * double_norm.bytes.size());
         tensors.erase("model.layers.1.self_attn.k_proj.weight");
         c.write(tensors);
       },
       2,
       {"hf: the tensors are not those of LlamaForCausalLM, as model decoder with the settings of "
        "config.json:\n",
        "missing: 'model.layers.1.self_attn.k_proj.weight' [8, 16]\n",
        "'lm_head.weight' has shape [16, 67]; expected [67, 16]\n",
        "'model.layers.0.input_layernorm.weight' is F64; expected F32, BF16 or F16",
        "unknown: 'adapter' [16]\n", "unknown: 'model.layers.2.extra.weight' [16]\n"}},
      {"llama",
       [](const Changed& c) { c.set("tie_word_embeddings", false), c.set("attention_bias", true); },
       2,
       {"missing: 'model.layers.0.self_attn.q_proj.bias' [16]"}},
  };
  for (const auto& c : cases) {
    const Changed copy(scratch, c.fixture);
    c.change(copy);
    const Ended ended = scratch.run({"import", "hf", "-o", "out"});
    EXPECT_EQ(ended.status, c.status) << c.says.front() << "\n" << ended.err;
    for (const std::string& words : c.says) EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_FALSE(fs::exists(scratch / "out")) << c.says.front();
  }
  EXPECT_THAT(scratch.run({"import"}).err, HasSubstr("tenon import: which FOLDER?"));
}

TEST(Import, ReadsAnotherArchitectureWithTheImporterThatIsAskedFor) {
  const Scratch scratch;
  const Changed copy(scratch, "llama");
  const json known = json_of(scratch.run({"import", "hf", "-o", "known", "--json"}));
  copy.set("architectures", {"YarnForCausalLM"});
  const json forced = json_of(scratch.run({"import", "hf", "-o", "forced", "--model", "decoder", "--json"}));
  EXPECT_EQ(forced.at("weights_hash"), known.at("weights_hash"));
  EXPECT_EQ(forced.at("importer"), "decoder");
  EXPECT_THAT(scratch.run({"import", "hf", "--model", "mlp"}).err,
              HasSubstr("--model is 'mlp', and no importer is; there are decoder, gpt_neo"));
}

/// Trains the tiny run with another model, exports it in one file and in shards, and imports both.
void round_trip(const std::string& model) {
  const Scratch scratch;
  std::string toml = read_file(scratch / "run.toml");
  const auto begin = toml.find("[model]"), end = toml.find("\n[", begin);
  write_file(scratch / "run.toml", toml.substr(0, begin) + "[model]\n" + model + toml.substr(end));
  const Ended trained = scratch.train();
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string hash = scratch.summary("weights_hash");
  ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "one/model.safetensors"}).status, 0);
  const Ended sharded = scratch.run({"export", "runs/tiny", "--out", "many", "--max-shard", "6KiB"});
  ASSERT_EQ(sharded.status, 0) << sharded.err;
  EXPECT_TRUE(fs::exists(scratch / "many/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(scratch / "many/model.safetensors"));
  for (const std::string folder : {"one", "many"}) {
    const json result = json_of(scratch.run({"import", folder, "-o", folder + "_model", "--json"}));
    EXPECT_EQ("\"" + result.at("weights_hash").get<std::string>() + "\"", hash) << model << folder;
  }
}

TEST(Export, AndImportOfARunGiveItsWeights) {
  round_trip("type = \"gpt_neo\"\nlayers = 2\nwidth = 16\nheads = 2\n");
  for (const char* more : {"", "tied = true\n", "export_as = \"Phi3ForCausalLM\"\n", "window = 4\n",
                           "bias = [\"qkv\", \"out\", \"ffn\"]\nffn = \"geglu\"\nhead_width = 6\n"}) {
    round_trip(
        std::string("type = \"decoder\"\npattern = \"*-\"\nrepeat = 2\nwidth = 16\nheads = 4\nkv_heads = "
                    "2\nhidden = 24\n") +
        more);
  }
}

TEST(Export, ShardsHaveAnIndexAsTransformersWritesIt) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "many", "--max-shard", "10KB"}).status, 0);
  const json index = json::parse(read_file(scratch / "many/model.safetensors.index.json"));
  std::map<std::string, std::string> places;
  std::size_t bytes = 0, files = 0;
  for (const auto& entry : fs::directory_iterator(scratch / "many")) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    const SafetensorsReader reader(make_posix_files()->open(entry.path()), "shard");
    std::size_t own = 0;
    for (const SafetensorsEntry& tensor : reader.entries()) {
      places[tensor.name] = entry.path().filename();
      own += static_cast<std::size_t>(tensor.bytes());
    }
    EXPECT_TRUE(own <= 10000 || reader.entries().size() == 1) << entry.path();
    bytes += own;
  }
  EXPECT_EQ(index.at("weight_map").get<decltype(places)>(), places);
  EXPECT_EQ(index.at("metadata").at("total_size"), bytes);
  EXPECT_TRUE(fs::exists(scratch / ("many/model-00001-of-0000" + std::to_string(files) + ".safetensors")));
  // One file suffices: no index.
  ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "whole", "--max-shard", "1GB"}).status, 0);
  EXPECT_TRUE(fs::exists(scratch / "whole/model.safetensors"));
  EXPECT_FALSE(fs::exists(scratch / "whole/model.safetensors.index.json"));
  // Files of another export would be read with these.
  const Ended mixed =
      scratch.run({"export", "runs/tiny", "--out", "many", "--max-shard", "1GB", "--overwrite"});
  EXPECT_EQ(mixed.status, 2);
  EXPECT_THAT(mixed.err, HasSubstr("is of another export, and programs would read both"));
  EXPECT_THAT(scratch.run({"export", "runs/tiny", "--out", "many", "--max-shard", "10KB"}).err,
              HasSubstr("many/config.json exists; choose another --out, or add --overwrite"));
  EXPECT_EQ(
      scratch.run({"export", "runs/tiny", "--out", "many", "--max-shard", "10KB", "--overwrite"}).status, 0);
  for (const char* size : {"0", "10TB", "MiB", "1.5GB", "9223372036854775807KiB", "-1"})
    EXPECT_THAT(scratch.run({"export", "runs/tiny", "--out", "x", "--max-shard", size}).err,
                HasSubstr("expected a size such as 512MiB or 5GB, of at least one byte"))
        << size;
}

TEST(Export, RefusesADecoderThatOthersCannotRepresent) {
  const std::string base = "[model]\ntype = \"decoder\"\nwidth = 16\nheads = 4\nhidden = 24\n";
  const struct {
    const char *more, *says;
  } cases[] = {
      {"pattern = \"*--\"\n", "layer 2 of 'pattern' is -; expected * and - in turns"},
      {"pattern = \"*-*\"\n", "the last layer of 'pattern' is *"},
      {"pattern = \"*-\"\nposition = \"none\"\n", "'position' of layer 0 is none; expected rope"},
      {"pattern = \"*-\"\nffn = \"squared_relu\"\n",
       "'ffn' of layer 1 is squared_relu; expected swiglu or geglu"},
      {"pattern = \"*-\"\nbias = [\"qkv\"]\n", "'bias' of layer 0 is [qkv]; expected [qkv, out]"},
      {"pattern = \"*-*-\"\n[[model.block]]\nat = \"2\"\nkv_heads = 2\n",
       "'kv_heads' of layer 2 is 2; expected 4"},
      {"pattern = \"*-*-\"\n[[model.block]]\nat = \"3\"\nskip = true\n", "'block' skips layer 3"},
      {"pattern = \"*-\"\nwindow = 4\nexport_as = \"LlamaForCausalLM\"\n",
       "'window' of layer 0 is 4; expected 0"},
  };
  for (const auto& c : cases) {
    const Scratch scratch;
    std::string toml = read_file(scratch / "run.toml");
    const auto begin = toml.find("[model]"), end = toml.find("\n[", begin);
    write_file(scratch / "run.toml", toml.substr(0, begin) + base + c.more + toml.substr(end));
    const Ended trained = scratch.train({"--set", "run.steps=1"});
    ASSERT_EQ(trained.status, 0) << trained.err;
    const Ended ended = scratch.run({"export", "runs/tiny", "--out", "hf/model.safetensors"});
    EXPECT_EQ(ended.status, 2) << c.more;
    EXPECT_THAT(ended.err, HasSubstr("ForCausalLM has no such model: "));
    EXPECT_THAT(ended.err, HasSubstr(c.says));
    EXPECT_FALSE(fs::exists(scratch / "hf"));
    ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "hf/model.safetensors", "--own-names"}).status, 0);
    EXPECT_FALSE(fs::exists(scratch / "hf/config.json"));
    EXPECT_TRUE(weights_of(scratch / "hf").contains("model.layers.0.norm.weight"));
  }
}

TEST(Export, OfAModelFolderNeedsItsContextAndHasNoSteps) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  write_file(scratch / "t.toml",
             "[transform]\ntype = \"identity\"\nfrom = [\"runs/tiny\"]\nto = \"model\"\n");
  ASSERT_EQ(scratch.run({"transform", "t.toml"}).status, 0);
  EXPECT_THAT(scratch.run({"export", "model", "--out", "a/model.safetensors"}).err,
              HasSubstr("model/model.toml: [model] has no 'context'"));
  write_file(scratch / "model/model.toml",
             replaced(read_file(scratch / "model/model.toml"), "[model]\n", "[model]\ncontext = 16\n"));
  ASSERT_EQ(scratch.run({"export", "model", "--out", "a/model.safetensors"}).status, 0);
  ASSERT_EQ(scratch.run({"export", "runs/tiny", "--out", "b/model.safetensors"}).status, 0);
  for (const char* file : {"model.safetensors", "config.json"})
    EXPECT_EQ(read_file(scratch / "a" / file), read_file(scratch / "b" / file)) << file;
  EXPECT_THAT(scratch.run({"export", "model", "--out", "c/model.safetensors", "--step", "4"}).err,
              HasSubstr("--step 4: model is a model folder, which has no steps"));
}

}  // namespace
}  // namespace tenon::integration::import_test
