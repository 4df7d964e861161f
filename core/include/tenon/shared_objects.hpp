// Objects that several components of one rank have in common: weights that many layers read, of several
// workers.
#pragma once

#include <tenon/abi.hpp>

#include <functional>
#include <memory>
#include <string_view>

TENON_ABI_BEGIN

/// Base of what is shared; its destructor ends it.
class SharedObject {
 public:
  virtual ~SharedObject();
};

/// Service of the host. Any thread of the rank.
class SharedObjects {
 public:
  static constexpr const char* kId = "tenon.shared_objects/1";
  virtual ~SharedObjects();
  /// Returns the object of `key`, or what `make` returns if there is none; one `make` runs at a time. Holders
  /// end in any order, so ownership is shared: the object ends with its last holder.
  virtual std::shared_ptr<SharedObject> get(std::string_view key,
                                            const std::function<std::unique_ptr<SharedObject>()>& make) = 0;
};

/// For hosts.
std::unique_ptr<SharedObjects> make_shared_objects();

TENON_ABI_END
