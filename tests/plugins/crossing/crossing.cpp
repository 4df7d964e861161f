// The plugin's side. Built by several compilers, see .ci/check_compilers.
#include "crossing.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>

#include <memory>
#include <stdexcept>

namespace {

constexpr const char* kModes[] = {"up", "down", nullptr};

class Traveller final : public crossing::Crossing, public crossing::Count {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("start", "3").between(0, 10).doc_text("first value"),
      tenon::option::real("rate", "0.5").at_least(0),
      tenon::option::text("mode", "\"up\"").one_of(kModes),
      tenon::option::texts("names", "[\"a\", \"a name that does not fit into a short string\"]"),
      tenon::option::reals("weights", "[0.25, 0.75]"),
      tenon::option::boolean("loud", "false")};
  static constexpr tenon::ComponentInfo kInfo{
      .id = "traveller", .summary = "crosses the boundary", .options = kOptions};

  Traveller(const tenon::Options& options, tenon::Host& host)
      : count_(options.integer("start") + host.rank()), mode_(options.text("mode")) {
    for (const std::string_view name : options.texts("names")) names_.emplace_back(name);
    for (const double weight : options.reals("weights")) sum_ += weight;
    sum_ *= options.real("rate");
    host.log(tenon::LogLevel::kInfo, "made, " + mode_);
    if (options.boolean("loud")) throw std::invalid_argument("too loud");
  }

  std::string describe(const std::vector<std::string>& words) const override {
    std::string text = mode_;
    for (const std::string& name : names_) text += "|" + name;
    for (const std::string& word : words) text += "/" + word;
    return text;
  }

  tenon::GraphSpec build(const tenon::DataInfo& data) override {
    tenon::GraphSpec graph;
    for (const tenon::DataField& field : data.fields) {
      graph.nodes.push_back({field.name + " of a name too long for a short string",
                             "identity",
                             {field.name},
                             {{"list", std::vector<double>{sum_, 2.0}}, {"text", mode_}}});
    }
    return graph;
  }

  void fail(crossing::Throw what) override {
    switch (what) {
      case crossing::Throw::kConfigError:
        tenon::fail_config("no such option in " + mode_);
      case crossing::Throw::kDeadline:
        throw tenon::DeadlineError("rank 1 is late");
      case crossing::Throw::kOutOfRange:
        throw std::out_of_range("row 9");
      case crossing::Throw::kOwnType:
        throw crossing::OwnException(41);
      case crossing::Throw::kNumber:
        throw 7;
    }
  }

  void fill(tenon::TensorView view) override {
    for (std::int64_t i = 0; i < view.shape.elements(); ++i)
      static_cast<float*>(view.data)[i] = static_cast<float>(i + count_);
  }

  void state(tenon::StateVisitor& visitor) override {
    visitor.integer("count", count_);
    visitor.real("sum", sum_);
    visitor.text("mode", mode_);
    visitor.enter("inner");
    for (std::string& name : names_) visitor.text("name" + std::to_string(&name - names_.data()), name);
    visitor.leave();
  }

  void* query(std::string_view interface_id) override {
    return interface_id == "crossing.count/1" ? static_cast<crossing::Count*>(this) : nullptr;
  }
  std::int64_t count() const override { return count_; }

 private:
  std::int64_t count_;
  std::string mode_;
  std::vector<std::string> names_;
  double sum_ = 0;
};

// Both are kept until the process ends: their destructors run when plugin and program come apart.
thread_local std::string last_thread_word = "a thread's word, too long for a short string";
std::string& shared_word() {
  static std::string word = "a word of the process, too long for a short string";
  return word;
}
int init(const tenon_host_v1*, tenon_error*) {
  return shared_word().empty() || last_thread_word.empty();
}
constexpr tenon::PluginHooks kHooks{.init = init};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "test.crossing",
                               .version = "1.0.0",
                               .summary = "crosses the boundary",
                               .hooks = &kHooks},
             Traveller)
