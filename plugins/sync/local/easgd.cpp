// The exchange of easgd.hpp.
#include "easgd.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::sync_local {

Easgd::Easgd(const Options& options) : Centered("easgd", "center", options) {
  if (options.has("elastic")) given_ = options.real("elastic");
}

Easgd::~Easgd() {
  for (const TensorView& view : exchanged_)
    device_->release(view.data, static_cast<std::size_t>(view.bytes()));
}

void Easgd::start(Replica& replica) {
  const int replicas = replica.replicas();
  elastic_ = given_.value_or(0.9 / replicas);
  if (replicas > 1 && !((replicas + 1) * elastic_ < 2)) {
    fail_config(
        fmt::format("sync easgd: elastic = {:.6g} with {} replicas: exchanges diverge from (K + 1) * elastic "
                    "= 2 on, and this is {:.4g}; "
                    "take less than {:.4g}",
                    elastic_, replicas, (replicas + 1) * elastic_, 2.0 / (replicas + 1)));
  }
  Centered::start(replica);
  device_ = &replica.device();
  for (const int arena : arenas()) {
    TensorView view = replica.live().arena(arena);
    view.data = device_->allocate(static_cast<std::size_t>(view.bytes()));
    exchanged_.push_back(view);
  }
}

ParameterSet& Easgd::evaluation_parameters() {
  return exchanges() ? Centered::evaluation_parameters() : replica().live();
}

void Easgd::meet() {
  if (!exchanges()) return;
  for (std::size_t i = 0; i < arenas().size(); ++i) {
    const TensorView x = replica().live().arena(arenas()[i]), center = this->center().arena(arenas()[i]);
    const TensorView moved = exchanged_[i];
    elementwise().subtract(x, center, moved);
    elementwise().scale(moved, elastic_);
    elementwise().axpy(-1.0, moved, x);
    sum(moved);
    elementwise().axpy(1.0, moved, center);
  }
  center().touch(-1);
  replica().live().touch(-1);
}

}  // namespace tenon::sync_local
