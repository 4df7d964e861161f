// The JSON schemas of `tenon inspect --json-schema`, as an editor applies them: another TOML reader (toml++)
// and another validator (Valijson) judge every shipped file, parts of files, and files with one edit. Where
// `tenon check` and its kin refuse an edit of a key or of a value's type, the schema must nearly always do so
// too, and never where they accept it.
#include "run_program.hpp"
#include "test_paths.hpp"

#include "ab/experiment.hpp"
#include "config/run_schema.hpp"
#include "config/testing/key_mutations.hpp"
#include "power/plan.hpp"
#include "reproduce/study_file.hpp"
#include "simulate/plan.hpp"
#include "transform/plan.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <toml++/toml.h>
#include <nlohmann/json.hpp>
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

#include <cmath>
#include <functional>
#include <iostream>
#include <set>

namespace tenon::integration::config_schema_test {
namespace {

using nlohmann::json;

const fs::path kConfigs = fs::path(TENON_SOURCE_DIR) / "configs";

/// As editors hand TOML to a validator: inf and nan, for which JSON has no numbers, are null.
json to_json(const toml::node& node) {
  if (const toml::table* table = node.as_table()) {
    json out = json::object();
    for (const auto& [key, value] : *table) out[std::string(key.str())] = to_json(value);
    return out;
  }
  if (const toml::array* array = node.as_array()) {
    json out = json::array();
    for (const toml::node& element : *array) out.push_back(to_json(element));
    return out;
  }
  if (const auto* value = node.as_boolean()) return value->get();
  if (const auto* value = node.as_integer()) return value->get();
  if (const auto* value = node.as_floating_point())
    return std::isfinite(value->get()) ? json(value->get()) : json();
  return node.value_or(std::string());
}

json parsed(const std::string& text) {
  return to_json(toml::parse(text));
}

/// The registry of this build, with which schema and checks are made.
Registry& registry() {
  static Registry all;
  static const bool once = [] {
    all.discover_only({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
    return true;
  }();
  static_cast<void>(once);
  return all;
}

class FileSchema {
 public:
  explicit FileSchema(const std::string& name, const std::map<std::string, std::string>& environment = {}) {
    const Scratch scratch;
    const Ended ended = scratch.run({"inspect", "--json-schema", name}, environment);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(ended.err, "");
    document_ = json::parse(ended.out);
    const valijson::adapters::NlohmannJsonAdapter adapter(document_);
    valijson::SchemaParser parser;
    parser.populateSchema(adapter, schema_);
  }

  const json& document() const { return document_; }

  bool accepts(const json& file) {
    valijson::Validator validator;
    const valijson::adapters::NlohmannJsonAdapter adapter(file);
    return validator.validate(schema_, adapter, nullptr);
  }

  std::string complaints(const json& file) {
    valijson::Validator validator;
    valijson::ValidationResults results;
    const valijson::adapters::NlohmannJsonAdapter adapter(file);
    if (validator.validate(schema_, adapter, &results)) return "";
    std::string text;
    for (valijson::ValidationResults::Error error; results.popError(error);) {
      for (const std::string& part : error.context) text += part;
      text += ": " + error.description + "\n";
    }
    return text;
  }

 private:
  json document_;
  valijson::Schema schema_;
};

std::vector<fs::path> shipped(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs / folder))
    if (entry.path().extension() == ".toml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(ConfigSchema, AcceptsEveryShippedFile) {
  const std::pair<const char*, std::vector<const char*>> kinds[] = {
      {"run", {"base", "presets", "reproduce", "shapes"}},
      {"experiment", {"experiments"}},
      {"study", {"studies"}},
      {"simulate", {"simulate"}},
      {"power", {"power"}},
      {"transform", {"transform"}}};
  std::size_t files = 0;
  for (const auto& [name, folders] : kinds) {
    FileSchema schema(name);
    EXPECT_EQ(schema.document()["$schema"], "http://json-schema.org/draft-07/schema#");
    for (const char* folder : folders) {
      for (const fs::path& file : shipped(folder)) {
        std::string text = read_file(file);
        // Its device exists where CUDA does; the emulated one takes the same keys.
        if (file.filename() == "device_cuda.toml" || file.filename() == "dlrm_zion.toml") {
          text = replaced(text, "\"cuda\"", "\"cuda_emulated\"");
        }
        EXPECT_EQ(schema.complaints(parsed(text)), "") << file;
        ++files;
      }
    }
  }
  std::size_t all = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kConfigs))
    all += entry.path().extension() == ".toml" ? 1 : 0;
  EXPECT_EQ(files, all);
}

TEST(ConfigSchema, JudgesPartsOfRuns) {
  struct Case {
    const char* text;
    bool good;
  };
  const Case cases[] = {
      {"[optimizer]\nlr = 0.1\n", true},  // type is in another layer
      {"[optimizer]\nlrr = 0.1\n", false},
      {"[optimizer]\ntype = \"sgd\"\nlr = 0.1\n", true},
      {"[optimizer]\ntype = \"tenon/sgd\"\nlr = 0.1\n", true},
      {"[optimizer]\ntype = \"sgdd\"\n", false},
      {"[optimizer]\ntype = \"sgd\"\nbetas = [0.9, 0.99]\n", false},  // of another optimizer
      {"[optimizer]\ntype = \"adamw\"\nbetas = [0.9, 0.99]\n", true},
      {"[sync]\ntype = \"streaming_diloco\"\n\"+patterns\" = [\"h.*\"]\n", true},
      {"[optimizer]\ntype = \"adamw\"\n\"+betas\" = [0.9]\n", false},
      {"[optimizer]\ntype = \"adamw\"\nbetas = 0.9\n", false},
      {"[[observe]]\ntype = \"csv\"\n", true},
      {"[[observe]]\n", false},  // an element of a list has all of its keys here
      {"[[\"+observe\"]]\ntype = \"csv\"\n", true},
      {"[observe]\ntype = \"csv\"\n", false},
      {"[[fault]]\nrank = 0\nstep = 3\nkind = \"crash\"\n", true},
      {"[[fault]]\nrank = 0\nkind = \"crash\"\n", false},
      {"[[fault]]\nrank = 0\nstep = 3\n\"+kind\" = \"crash\"\n", false},
      {"[[model.override]]\nmatch = \"h.*\"\n", true},
      {"[[model.override]]\nmatch = \"h.*\"\nname = \"h\"\n", false},
      {"[[model.override]]\n", false},
      {"[sync]\nbuffers = \"local\"\n", true},
      {"[sync]\nbuffers = \"nearby\"\n", false},
      {"[transport.link]\nbandwidth = inf\n", true},
      {"[run]\nsteps = 0\n", false},
      {"[run]\nsteps = \"7\"\n", false},
      {"extends = [\"a.toml\", \"b.toml\"]\n", true},
      {"extends = 3\n", false},
      {"[optimiser]\nlr = 0.1\n", false},
  };
  FileSchema schema("run");
  for (const Case& c : cases)
    EXPECT_EQ(schema.accepts(parsed(c.text)), c.good) << c.text << schema.complaints(parsed(c.text));
}

TEST(ConfigSchema, JudgesListsOfComponents) {
  const std::pair<const char*, bool> cases[] = {
      {"[[schedule.part]]\ntype = \"cosine\"\nwarmup = 2\n[[schedule.part]]\ntype = \"constant\"\n", true},
      {"[[schedule.part]]\ntype = \"cosine\"\nwarmpu = 2\n", false},
      {"[[schedule.part]]\ntype = \"cosin\"\n", false},
      {"[[schedule.part]]\nwarmup = 2\n", false},  // an element of a list has all of its keys here
      {"[[schedule.part]]\ntype = \"constant\"\nmin_lr = 0.1\n", false},  // of another schedule
      {"[[schedule.part]]\ntype = \"mean_of\"\npart = [{type = \"cosine\"}]\n", true},
      {"[[schedule.part]]\ntype = \"mean_of\"\npart = [{type = \"cosine\", warmpu = 2}]\n", false},
      {"[[schedule.part]]\ntype = \"mean_of\"\n", false},
      {"part = [\"cosine\"]\n", false},
      {"[schedule.part]\ntype = \"cosine\"\n", false},
      {"part = []\n", true},
  };
  FileSchema schema("run", {{"TENON_PLUGIN_PATH", TENON_LISTED}});
  for (const auto& [text, good] : cases) {
    const json file = parsed("[schedule]\ntype = \"mean_of\"\n" + std::string(text));
    EXPECT_EQ(schema.accepts(file), good) << text << schema.complaints(file);
  }
}

TEST(ConfigSchema, SaysWhatTheReferenceSays) {
  FileSchema schema("run");
  const json& run = schema.document()["properties"]["run"]["properties"];
  EXPECT_EQ(run["deadline"], json::parse(R"({"type": ["number", "null"], "minimum": 0.001, "default": 300,
      "description": "longest single wait, and longest pass of one layer [s]"})"));
  EXPECT_EQ(run["on_nan"]["enum"], json({"stop", "continue"}));
  EXPECT_EQ(run["steps"]["description"], "length of the run in slots [slots]; mandatory");
}

struct Tally {
  std::size_t refused = 0, caught = 0;
  std::vector<std::string> missed, wrongly;
};

/// Edits of one file: `root` is edited in place and restored. `seen` keeps every option to one round.
class Edits {
 public:
  Edits(Value& root, FileSchema& schema, std::function<bool(const Value&)> refused,
        std::set<std::string>& seen, Tally& tally)
      : root_(root), schema_(schema), refused_(std::move(refused)), seen_(seen), tally_(tally) {}

  void all() { visit(root_, ""); }

 private:
  void visit(Value& table, const std::string& path) {
    // Its options are checked when the graph is built, and not before.
    if (path == ".model.override") return;
    const Value* type = table.find("type");
    const std::string owner = path + (type != nullptr && type->is_text() ? "|" + type->text() : "") + "|";
    for (std::size_t i = 0; i < table.table().size(); ++i) {
      const std::string key = table.table()[i].key;
      if (seen_.insert(owner + key).second) edit(table, i, owner + key);
      Value& value = table.table()[i].value;
      if (value.is_table()) visit(value, path + "." + key);
      if (!value.is_array()) continue;
      for (Value& element : value.array())
        if (element.is_table()) visit(element, path + "." + key);
    }
  }

  void edit(Value& table, std::size_t index, const std::string& what) {
    const std::string key = table.table()[index].key;
    for (const std::string& misspelt : config::one_edit_mutations(key, 48)) {
      if (table.find(misspelt) != nullptr) continue;
      table.table()[index].key = misspelt;
      judge(what + " -> " + misspelt);
    }
    table.table()[index].key = key;
    const Value kept = table.table()[index].value;
    for (const Value& other : {Value(true), Value(std::int64_t{3}), Value(0.5), Value(std::string("text")),
                               Value(Value::Array{})}) {
      if (other.type() == kept.type()) continue;
      table.table()[index].value = other;
      judge(what + " = " + other.inline_toml());
    }
    table.table()[index].value = kept;
  }

  void judge(const std::string& what) {
    const bool accepted = schema_.accepts(parsed(to_toml(root_, false)));
    if (!refused_(root_)) {
      if (!accepted) tally_.wrongly.push_back(what);
      return;
    }
    ++tally_.refused;
    if (accepted)
      tally_.missed.push_back(what);
    else
      ++tally_.caught;
  }

  Value& root_;
  FileSchema& schema_;
  std::function<bool(const Value&)> refused_;
  std::set<std::string>& seen_;
  Tally& tally_;
};

bool is_refused(const std::function<void()>& read) {
  try {
    read();
    return false;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return true;
  }
}

void edit_runs(Tally& tally) {
  FileSchema schema("run");
  const Scratch scratch;
  std::set<std::string> seen;
  std::vector<fs::path> runs = shipped("base");
  for (const fs::path& file : shipped("reproduce")) runs.push_back(file);
  for (const fs::path& preset : shipped("presets")) {  // over a base it is a run
    runs.push_back(scratch / preset.filename());
    write_file(runs.back(), "extends = [\"" + (kConfigs / "base/gpt_tiny.toml").string() + "\", \"" +
                                preset.string() + "\"]\n");
  }
  for (const fs::path& file : runs) {
    // A run in stages is refused stage by stage: integration_stages_test.
    if (Config::load(file.string(), {}).find("stage") != nullptr) continue;
    std::vector<std::string> sets =
        data_of_shipped(file.filename().string(), (scratch / "text.txt").string());
    if (file.filename() == "device_cuda.toml") sets.push_back("device.type=cuda_emulated");
    const Config config = Config::load(file.string(), sets);
    Value root = config.root();
    const auto refused = [&](const Value& edited) {
      return is_refused([&] { config::check_run(config.with_root(edited), registry(), {}); });
    };
    ASSERT_FALSE(refused(root)) << file;
    Edits(root, schema, refused, seen, tally).all();
  }
}

/// Files that are not runs, each kind with its own reader.
void edit_files(const std::string& name, const std::string& folder,
                const std::function<void(const std::string&)>& read, Tally& tally) {
  FileSchema schema(name);
  const Scratch scratch;
  for (const char* other : {"base", "presets", "reproduce", "simulate", "power", "transform"})
    if (other != folder) fs::create_directory_symlink(kConfigs / other, scratch / other);
  std::set<std::string> seen;
  const fs::path edited = scratch / (folder + "/edited.toml");
  for (const fs::path& file : shipped(folder)) {
    Value root = Config::load(file.string(), {}).root();
    const auto refused = [&](const Value& value) {
      write_file(edited, to_toml(value, false));
      return is_refused([&] { read(edited.string()); });
    };
    ASSERT_FALSE(refused(root)) << file;
    Edits(root, schema, refused, seen, tally).all();
  }
}

TEST(ConfigSchema, RefusesWhatTheProgramRefuses) {
  Tally tally;
  edit_runs(tally);
  const std::size_t in_runs = tally.refused;
  EXPECT_GT(in_runs, 500u);
  edit_files(
      "experiment", "experiments", [](const std::string& path) { ab::read_experiment(path, {}); }, tally);
  edit_files(
      "study", "studies", [](const std::string& path) { reproduce::read_study(path); }, tally);
  edit_files(
      "simulate", "simulate",
      [](const std::string& path) { simulate::read_plan(Config::load(path, {}), registry(), path); }, tally);
  edit_files(
      "power", "power", [](const std::string& path) { power::read_file(path, registry()); }, tally);
  edit_files(
      "transform", "transform",
      [](const std::string& path) { transform::read_plan(Config::load(path, {}), registry(), path, ""); },
      tally);
  EXPECT_GT(tally.refused, in_runs + 200);
  EXPECT_EQ(tally.wrongly, std::vector<std::string>());
  EXPECT_GE(tally.caught * 100, tally.refused * 95) << "fewer than 95 % of the refused edits";
  std::cout << tally.refused << " edits are refused, " << tally.caught << " of them by the schema ("
            << 100.0 * static_cast<double>(tally.caught) / static_cast<double>(tally.refused) << " %)\n";
  for (const std::string& missed : tally.missed) std::cout << "  missed: " << missed << "\n";
}

TEST(ConfigSchema, AnUnknownKindOfFileIsNamed) {
  const Scratch scratch;
  const Ended ended = scratch.run({"inspect", "--json-schema", "experimnt"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.err,
            "tenon: tenon inspect --json-schema: there is no kind of file 'experimnt'; did you mean "
            "'experiment'? (known: run, experiment, study, simulate, power, transform)\n");
}

}  // namespace
}  // namespace tenon::integration::config_schema_test
