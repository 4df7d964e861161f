// Event handlers of tensorboard.hpp.
#include "tensorboard.hpp"

#include <tenon/tensor_values.hpp>

#include <unistd.h>

#include <chrono>

namespace tenon::tensorboard {
namespace {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace

TensorBoard::TensorBoard(const Options& options)
    : TensorBoard(options.integer("histograms_every"), options.real("flush_s"), make_posix_files(),
                  &unix_seconds) {}

TensorBoard::TensorBoard(std::int64_t histograms_every, double flush_s, std::unique_ptr<FileSystem> files,
                         Now now)
    : histograms_every_(histograms_every),
      flush_s_(flush_s),
      files_(std::move(files)),
      now_(std::move(now)) {}

void TensorBoard::on_start(const RunInfo& info) {
  const double now = now_();
  std::string path;
  int counter = 0;
  do {
    path =
        info.folder + "/" +
        event_file_name(static_cast<std::int64_t>(now), host_name(), static_cast<int>(::getpid()), counter++);
  } while (files_->exists(path));
  file_ = std::make_unique<EventFile>(files_->create(path), now);
  // A step is the number of completed slots, so events of the checkpoint's own step remain valid.
  if (info.first_slot > 0) file_->restart(now, info.first_slot + 1);
  file_->flush();
  flushed_at_ = now;
}

void TensorBoard::on_metric(const Metric& metric) {
  tag_.assign(split_name(metric)).append("/").append(metric.name);
  file_->scalar(now_(), metric.step, tag_, metric.value);
}

TensorRequest TensorBoard::tensors(std::int64_t slot) {
  slot_ = slot;
  return {.parameters = histograms_every_ > 0 && (slot + 1) % histograms_every_ == 0, .outputs = false};
}

void TensorBoard::on_parameters(std::span<const ObservedParameter> parameters) {
  for (const ObservedParameter& parameter : parameters) {
    histogram("weights/", parameter.info->spec.name, parameter.after, 1);
    histogram("gradients/", parameter.info->spec.name, parameter.gradient, parameter.gradient_scale);
  }
}

void TensorBoard::histogram(std::string_view prefix, std::string_view name, const TensorView& view,
                            double scale) {
  histogram_.clear();
  for_each_real(view, [&](double value) { histogram_.add(scale * value); });
  tag_.assign(prefix).append(name);
  file_->histogram(now_(), slot_ + 1, tag_, histogram_);
}

void TensorBoard::on_slot(const SlotRecord&) {
  const double now = now_();
  if (now - flushed_at_ < flush_s_) return;
  file_->flush();
  flushed_at_ = now;
}

void TensorBoard::on_finish(std::string_view, std::string_view) {
  if (file_ != nullptr) file_->flush();
}

void* TensorBoard::query(std::string_view interface_id) {
  if (interface_id == TensorObserver::kId && histograms_every_ > 0) return static_cast<TensorObserver*>(this);
  return nullptr;
}

}  // namespace tenon::tensorboard

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tensorboard",
                               .version = "0.1.0",
                               .summary = "event files for TensorBoard"},
             tenon::tensorboard::TensorBoard)
