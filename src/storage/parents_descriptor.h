// ParentsDescriptor: a descriptor that the children which the program forks close.
//
// A lock ends, and the other end of a socket learns that this process is gone, when the last descriptor is
// closed. A child that lives on after the program must not hold either up.
#pragma once

#include <memory>

#include "storage/system_path.h"

namespace tailrace::internal {

class ParentsDescriptor {
  public:
    explicit ParentsDescriptor(Descriptor descriptor);
    ~ParentsDescriptor();
    ParentsDescriptor(ParentsDescriptor&&) noexcept = default;
    ParentsDescriptor& operator=(ParentsDescriptor&&) noexcept = delete;
    const Descriptor& descriptor() const { return *descriptor_; }
    int get() const { return descriptor_->get(); }

  private:
    std::unique_ptr<Descriptor> descriptor_;  // null once it has been moved away
};

}  // namespace tailrace::internal
