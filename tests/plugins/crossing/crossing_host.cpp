// The program's side: takes one plugin file through everything. Usage: crossing_host FILE. Status 0 and one
// line per step when all holds. No test framework: it is built by every compiler of .ci/check_compilers.
#include "crossing.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/registry.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <stdexcept>

namespace {

using crossing::Throw;

void require(bool holds, const char* what) {
  std::printf("%s %s\n", holds ? "ok    " : "FAILED", what);
  if (!holds) std::exit(1);
}

class OneRank final : public tenon::Host {
 public:
  void log(tenon::LogLevel, std::string_view text) override { heard = text; }
  int rank() const override { return 2; }
  int world_size() const override { return 4; }
  double now() const override { return 0; }
  std::unique_ptr<tenon::Actor> spawn(std::string_view, std::function<void(tenon::Actor&)>) override {
    return nullptr;
  }
  double deadline() const override { return 1; }
  void* query(std::string_view) override { return nullptr; }
  std::string heard;
};

/// Keeps visited values, and returns them.
class Drawer final : public tenon::StateVisitor {
 public:
  explicit Drawer(bool load) : load_(load) {}
  bool loading() const override { return load_; }
  void integer(std::string_view name, std::int64_t& value) override { pass(integers, name, value); }
  void real(std::string_view name, double& value) override { pass(reals, name, value); }
  void text(std::string_view name, std::string& value) override { pass(texts, name, value); }
  void tensor(std::string_view, tenon::TensorView) override {}
  void enter(std::string_view name) override { prefix_ += std::string(name) + "."; }
  void leave() override { prefix_.clear(); }
  bool operator==(const Drawer& other) const {
    return integers == other.integers && reals == other.reals && texts == other.texts;
  }
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> reals;
  std::map<std::string, std::string> texts;

 private:
  template <typename Value>
  void pass(std::map<std::string, Value>& drawer, std::string_view name, Value& value) {
    Value& place = drawer[prefix_ + std::string(name)];
    if (load_)
      value = place;
    else
      place = value;
  }
  bool load_;
  std::string prefix_;
};

template <typename Exception>
bool throws(crossing::Crossing& object, Throw what, const std::string& text) {
  try {
    object.fail(what);
  } catch (const Exception& error) {
    return error.what() == text;
  } catch (...) {
  }
  return false;
}

tenon::Component<crossing::Crossing> make(tenon::Registry& registry, tenon::Host& host, const char* toml,
                                          std::unique_ptr<tenon::ResolvedOptions>& options) {
  const tenon::Config config = tenon::Config::parse(toml, "inline", std::vector<std::string>{});
  auto request =
      tenon::component_request(config.root(), registry.describe("crossing/1", "traveller"), &registry);
  options = tenon::resolve_options(request).options;
  return registry.create<crossing::Crossing>("traveller", *options, host);
}

void cross(const char* file) {
  tenon::Registry registry;
  registry.discover_only({file});
  OneRank host;
  std::unique_ptr<tenon::ResolvedOptions> options;
  auto object = make(registry, host, "mode = \"down\"\nweights = [1, 3]", options);
  require(host.heard == "made, down", "create, options of every type, a call back into the host");

  const std::string long_word(100, 'w');
  require(object->describe({"x", long_word}) ==
              "down|a|a name that does not fit into a short string/x/" + long_word,
          "strings that the plugin makes and the program frees");
  tenon::DataInfo data;
  data.fields.push_back({"tokens", tenon::DType::kI32, {}});
  {
    const tenon::GraphSpec graph = object->build(data);
    require(graph.nodes.size() == 1 && graph.nodes[0].inputs == std::vector<std::string>{"tokens"} &&
                std::get<std::vector<double>>(graph.nodes[0].options[0].value)[0] == 2.0,
            "vectors of structs of variants");
  }
  std::array<float, 6> values{};
  object->fill(tenon::TensorView{values.data(), tenon::Shape{2, 3}, tenon::DType::kF32});
  require(values[5] == 10.0f, "a tensor view");

  require(throws<tenon::Error>(*object, Throw::kConfigError, "no such option in down"),
          "tenon::Error by type");
  require(throws<tenon::DeadlineError>(*object, Throw::kDeadline, "rank 1 is late"),
          "tenon::DeadlineError by type");
  require(throws<std::out_of_range>(*object, Throw::kOutOfRange, "row 9"), "a standard exception by type");
  require(throws<crossing::OwnException>(*object, Throw::kOwnType, "own exception"),
          "an exception of a header by type");
  try {
    object->fail(Throw::kNumber);
  } catch (int number) {
    require(number == 7, "a number thrown");
  }
  try {
    std::unique_ptr<tenon::ResolvedOptions> loud;
    make(registry, host, "loud = true", loud);
    require(false, "an exception out of create");
  } catch (const tenon::Error& error) {
    require(error.what() == std::string("plugin test.crossing (crossing.traveller, rank 2): too loud"),
            "an exception out of create, named");
  }

  auto* count = static_cast<crossing::Count*>(object.handle().query("crossing.count/1"));
  require(count != nullptr && count->count() == 5, "an extension through query");
  require(dynamic_cast<crossing::Crossing*>(count) == object.get(),
          "dynamic_cast across classes of the plugin");

  Drawer saved(false);
  object->state(saved);
  require(saved.integers["count"] == 5 && saved.texts["inner.name0"] == "a", "state saved");
  std::unique_ptr<tenon::ResolvedOptions> other_options;
  auto other = make(registry, host, "start = 9\nnames = [\"z\", \"y\"]", other_options);
  Drawer before(false), after(false), load(true);
  other->state(before);
  require(!(before == saved), "another instance has another state");
  load.integers = saved.integers;
  load.reals = saved.reals;
  load.texts = saved.texts;
  other->state(load);
  other->state(after);
  require(after == saved, "state loaded");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  cross(argv[1]);
  return 0;
} catch (const std::exception& error) {
  std::printf("FAILED %s\n", error.what());
  return 1;
}
