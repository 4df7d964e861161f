// Observer `prometheus`: the state of a run in Prometheus' text exposition format (version 0.0.4), in a file
// that is replaced as a whole, as the textfile collector of node_exporter reads it.
#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

class Prometheus final : public tenon::Observer {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::path("folder", nullptr).doc_text("of the textfile collector; absent: the run's own"),
      tenon::option::text("file", "\"tenon.prom\"")
          .doc_text("name in that folder; the collector reads *.prom"),
      tenon::option::integer("every", "10")
          .at_least(1)
          .in_unit("slots")
          .doc_text("from one file to the next"),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "prometheus",
      .summary = "state of the run for Prometheus' textfile collector",
      .options = kOptions};

  explicit Prometheus(const tenon::Options& options)
      : folder_(options.has("folder") ? options.text("folder") : ""),
        file_(options.text("file")),
        every_(options.integer("every")),
        files_(tenon::make_posix_files()) {
    if (!file_.ends_with(".prom") || file_.find('/') != std::string::npos) {
      tenon::fail_config("observer prometheus: option 'file': expected a name that ends in .prom, found '" +
                         file_ + "'");
    }
  }

  bool every_rank() const override { return false; }
  void on_start(const tenon::RunInfo& info) override {
    path_ = (folder_.empty() ? info.folder : folder_) + "/" + file_;
    run_ = escaped(info.name);
    planned_ = info.steps;
    write();
  }
  void on_slot(const tenon::SlotRecord& record) override {
    last_ = record;
    if (!record.applied) ++refused_;
    if ((record.slot + 1) % every_ == 0) write();
  }
  void on_metric(const tenon::Metric& metric) override {
    for (Newest& newest : metrics_) {  // a steady slot adds none
      if (newest.split == metric.split && newest.name == metric.name) {
        newest.value = metric.value;
        return;
      }
    }
    const std::string labels = ",split=\"" + std::string(tenon::split_name(metric.split)) + "\",name=\"" +
                               escaped(metric.name) + "\"";
    metrics_.push_back({metric.split, std::string(metric.name), labels, metric.value});
  }
  void on_span(const tenon::Span&) override {}
  void on_finish(std::string_view status, std::string_view) override {
    status_ = ",status=\"" + escaped(status) + "\"";
    write();
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  struct Newest {
    tenon::Split split;
    std::string name, labels;
    double value;
  };

  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '\\' || c == '"') out += '\\';
      out += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return out;
  }

  using Text = std::string_view;
  /// Without temporary strings: a steady slot allocates nothing.
  void add(std::initializer_list<Text> parts) {
    for (const Text part : parts) text_ += part;
  }
  void family(Text name, Text type, Text help) {
    add({"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"});
  }
  void sample(Text name, Text labels, double value) {
    std::array<char, 32> digits;
    const auto [end, failure] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    Text number(digits.data(), static_cast<std::size_t>(end - digits.data()));
    if (std::isnan(value)) number = "NaN";
    if (std::isinf(value)) number = value > 0 ? "+Inf" : "-Inf";
    add({name, "{run=\"", run_, "\"", labels, "} ", number, "\n"});
  }
  void one(Text name, Text type, Text help, double value) {
    family(name, type, help);
    sample(name, "", value);
  }

  void write() {
    text_.clear();
    one("tenon_planned_slots", "gauge", "Slots after which the run ends.", static_cast<double>(planned_));
    if (last_.slot >= 0) {
      one("tenon_slots_total", "counter", "Slots done.", static_cast<double>(last_.slot + 1));
      one("tenon_samples_total", "counter", "Samples trained on.", static_cast<double>(last_.samples));
      one("tenon_refused_total", "counter", "Refused updates of this attempt.",
          static_cast<double>(refused_));
      one("tenon_loss", "gauge", "Training loss of the last slot.", last_.loss);
      one("tenon_learning_rate", "gauge", "Learning rate of the last slot.", last_.lr);
      one("tenon_gradient_norm", "gauge", "Gradient norm of the last slot.", last_.gradient_norm);
    }
    if (!metrics_.empty()) family("tenon_metric", "gauge", "Newest value of each line of metrics.jsonl.");
    for (const Newest& newest : metrics_) sample("tenon_metric", newest.labels, newest.value);
    family("tenon_run_finished", "gauge", "1 once the run has ended, with its status.");
    sample("tenon_run_finished", status_, status_.empty() ? 0 : 1);
    files_->write_text_atomically(path_, text_);
  }

  std::string folder_, file_, path_, run_, status_, text_;
  std::int64_t every_, planned_ = 0, refused_ = 0;
  tenon::SlotRecord last_{.slot = -1};
  std::vector<Newest> metrics_;
  std::unique_ptr<tenon::FileSystem> files_;
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "author.prometheus",
                               .version = "0.1.0",
                               .summary = "Prometheus text files",
                               .vendor = "author"},
             Prometheus)
