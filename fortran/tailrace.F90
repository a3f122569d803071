! tailrace for Fortran. docs/fortran.md tells how to use and link it.
!
! The procedures do what the functions of tailrace.h with the same names do. What differs:
!
!   - Arrays keep their Fortran shape: dimension 1 is the fastest, and indices count from 1.
!   - A variable of any type, kind and rank may be registered. A piece of a global array may be any section
!     with positive strides. To leave out ghost cells, register the section without them: u(1:nx, 1:ny).
!   - Every procedure has stat= and errmsg=, as the statements of the language have them: stat is 0 or one of
!     the codes below, and errmsg is defined only if stat is not 0. Without stat= a failure writes its sentence
!     to error_unit, and ends the program by ERROR STOP.
!
! Registered variables must live, and stay where they are, until they are updated, removed, or the session is
! closed. Give them the TARGET attribute: save and restore reach them without being given them.
!
! Threads: as tailrace.h says. Needs assumed-rank arguments (Fortran 2018), as mpi_f08 does.
module tailrace
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit, int32, int64, real64
#ifdef TAILRACE_MPI_F08
  use mpi_f08, only: MPI_Comm
#endif
  implicit none
  private

  ! ---- values of stat=: the codes of tailrace_status.h --------------------------------------------------
  integer, parameter, public :: tailrace_ok = 0
  integer, parameter, public :: tailrace_invalid_argument = 1
  integer, parameter, public :: tailrace_not_found = 2
  integer, parameter, public :: tailrace_already_exists = 3
  integer, parameter, public :: tailrace_no_space = 4
  integer, parameter, public :: tailrace_io_error = 5
  integer, parameter, public :: tailrace_corrupt = 6
  integer, parameter, public :: tailrace_unsupported = 7
  integer, parameter, public :: tailrace_busy = 8
  integer, parameter, public :: tailrace_failed_state = 9
  integer, parameter, public :: tailrace_out_of_memory = 10
  integer, parameter, public :: tailrace_timeout = 11
  integer, parameter, public :: tailrace_transport = 12
  integer, parameter, public :: tailrace_aborted = 13

  ! ---- where an epoch is on its way: component state of tailrace_epoch ------------------------------------
  integer, parameter, public :: tailrace_state_unknown = 0
  integer, parameter, public :: tailrace_state_captured = 1
  integer, parameter, public :: tailrace_state_flushing = 2
  integer, parameter, public :: tailrace_state_committed = 3
  integer, parameter, public :: tailrace_state_kept_local = 4
  integer, parameter, public :: tailrace_state_failed = 5
  integer, parameter, public :: tailrace_state_protected = 6

  type, public :: tailrace_epoch
    integer(int64) :: epoch = 0
    integer :: run = 0  ! which session saved it, counted from 1 in the shared directory
    integer :: state = tailrace_state_unknown
    integer :: why_code = tailrace_ok
    character(:), allocatable :: why  ! if it failed: why
    integer(int64) :: captured_bytes = 0  ! of this rank
    real(real64) :: blocked_seconds = 0, flush_seconds = 0
    integer(int64) :: losses_survived = 0  ! nodes of each redundancy set
  end type

  ! Settings of a session; docs/settings.md lists the keys. Freed with the variable. Not to be copied.
  type, public :: tailrace_options
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    generic :: set => set_text, set_int32, set_int64, set_real, set_logical
    procedure :: load
    procedure, private :: set_text, set_int32, set_int64, set_real, set_logical
    final :: free_options
  end type

  type, public :: tailrace_session
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
#if defined(TAILRACE_MPI_F08)
    generic :: open => open_alone, open_mpi, open_mpi_f08
    procedure, private :: open_alone, open_mpi, open_mpi_f08
#elif defined(TAILRACE_MPI)
    generic :: open => open_alone, open_mpi
    procedure, private :: open_alone, open_mpi
#else
    generic :: open => open_alone
    procedure, private :: open_alone
#endif
    procedure :: close => close_session
    procedure :: is_open
    procedure :: rank => rank_of
    procedure :: rank_count
    procedure :: setting
    generic :: register => register_region, register_array32, register_array64
    generic :: register_list => register_list32, register_list64
    procedure :: register_replicated
    procedure :: set_list_owner
    generic :: update => update_region, update_array32, update_array64
    procedure :: remove
    generic :: save => save32, save64
    generic :: restore => restore32, restore64
    generic :: wait => wait32, wait64
    procedure :: wait_all
    generic :: state => state32, state64
    procedure :: files_begin
    procedure :: files_route
    generic :: files_save => files_save32, files_save64
    generic :: files_restore => files_restore32, files_restore64
    procedure :: files_find
    procedure :: files_release
    procedure :: should_save
    procedure :: should_stop
    procedure, private :: files_save32, files_save64, files_restore32, files_restore64
    procedure, private :: register_region, register_array32, register_array64
    procedure, private :: register_list32, register_list64
    procedure, private :: update_region, update_array32, update_array64
    procedure, private :: save32, save64, restore32, restore64, wait32, wait64, state32, state64
  end type

  public :: tailrace_version, tailrace_owner

  ! The rank, from 0, that gets item `index` (from 0) of a list of `items` (set_list_owner).
  abstract interface
    function tailrace_owner(unused, index, items, rank_count) bind(C) result(rank)
      import :: c_int, c_int64_t, c_ptr
      type(c_ptr), value :: unused
      integer(c_int64_t), value :: index, items
      integer(c_int), value :: rank_count
      integer(c_int) :: rank
    end function
  end interface

  integer(c_int64_t), parameter :: newest = -1  ! all bits set: TAILRACE_NEWEST
  integer(c_int32_t), parameter :: any_rank = -1  ! all bits set: TAILRACE_ANY_RANK
  integer, parameter :: max_path_bytes = 4096  ! TAILRACE_MAX_PATH_BYTES

  ! tailrace_epoch_info of tailrace.h
  type, bind(C) :: epoch_info
    integer(c_int64_t) :: epoch
    integer(c_int32_t) :: run
    integer(c_int) :: state, why_code
    character(kind=c_char) :: why(1024)
    integer(c_int64_t) :: captured_bytes
    real(c_double) :: blocked_seconds, flush_seconds
    integer(c_int) :: in_local, in_shared
    integer(c_int64_t) :: losses_survived, reserved(7)
  end type

  interface
    function c_version() bind(C, name="tailrace_version")
      import; type(c_ptr) :: c_version
    end function
    function c_error() bind(C, name="tailrace_fortran_error")
      import; type(c_ptr) :: c_error
    end function
    subroutine c_forget() bind(C, name="tailrace_fortran_forget")
    end subroutine
    function c_strlen(text) bind(C, name="strlen")
      import; type(c_ptr), value :: text; integer(c_size_t) :: c_strlen
    end function
    function c_options_new() bind(C, name="tailrace_options_new")
      import; type(c_ptr) :: c_options_new
    end function
    subroutine c_options_free(options) bind(C, name="tailrace_options_free")
      import; type(c_ptr), value :: options
    end subroutine
    function c_options_load(options, path) bind(C, name="tailrace_options_load") result(code)
      import; type(c_ptr), value :: options; character(kind=c_char), intent(in) :: path(*); integer(c_int) :: code
    end function
    function c_options_set(options, key, text) bind(C, name="tailrace_options_set") result(code)
      import
      type(c_ptr), value :: options
      character(kind=c_char), intent(in) :: key(*), text(*)
      integer(c_int) :: code
    end function
    function c_open(options, session) bind(C, name="tailrace_open") result(code)
      import; type(c_ptr), value :: options; type(c_ptr) :: session; integer(c_int) :: code
    end function
#ifdef TAILRACE_MPI
    function c_open_mpi(communicator, options, session) bind(C, name="tailrace_fortran_open_mpi") result(code)
      import
      integer(c_int), value :: communicator
      type(c_ptr), value :: options
      type(c_ptr) :: session
      integer(c_int) :: code
    end function
#endif
    function c_close(session) bind(C, name="tailrace_fortran_close") result(code)
      import; type(c_ptr), value :: session; integer(c_int) :: code
    end function
    function c_rank(session) bind(C, name="tailrace_rank")
      import; type(c_ptr), value :: session; integer(c_int) :: c_rank
    end function
    function c_rank_count(session) bind(C, name="tailrace_rank_count")
      import; type(c_ptr), value :: session; integer(c_int) :: c_rank_count
    end function
    function c_setting(session, key) bind(C, name="tailrace_setting")
      import; type(c_ptr), value :: session; character(kind=c_char), intent(in) :: key(*); type(c_ptr) :: c_setting
    end function
    function c_region(session, name, memory, again) bind(C, name="tailrace_fortran_region") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), target :: memory
      integer(c_int), value :: again
      integer(c_int) :: code
    end function
    function c_array(session, name, memory, dimensions, global_shape, first, flags, again) &
        bind(C, name="tailrace_fortran_array") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), target :: memory
      integer(c_int), value :: dimensions
      integer(c_int64_t), intent(in) :: global_shape(*), first(*)
      integer(c_int64_t), value :: flags
      integer(c_int), value :: again
      integer(c_int) :: code
    end function
    function c_list(session, name, memory, count, count_bytes) bind(C, name="tailrace_fortran_list") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), target :: memory
      type(c_ptr), value :: count
      integer(c_size_t), value :: count_bytes
      integer(c_int) :: code
    end function
    function c_list_owner(session, name, owner, user) bind(C, name="tailrace_set_list_owner") result(code)
      import :: c_char, c_funptr, c_int, c_ptr
      type(c_ptr), value :: session, user
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr), value :: owner
      integer(c_int) :: code
    end function
    function c_unregister(session, name) bind(C, name="tailrace_fortran_remove") result(code)
      import; type(c_ptr), value :: session; character(kind=c_char), intent(in) :: name(*); integer(c_int) :: code
    end function
    function c_save(session, epoch) bind(C, name="tailrace_save") result(code)
      import; type(c_ptr), value :: session; integer(c_int64_t), value :: epoch; integer(c_int) :: code
    end function
    function c_restore(session, epoch, restored) bind(C, name="tailrace_restore") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int64_t), value :: epoch
      integer(c_int64_t) :: restored
      integer(c_int) :: code
    end function
    function c_restore_some(session, epoch, names, name_count, restored) bind(C, name="tailrace_restore_some") &
        result(code)
      import
      type(c_ptr), value :: session
      integer(c_int64_t), value :: epoch
      type(c_ptr), intent(in) :: names(*)
      integer(c_size_t), value :: name_count
      integer(c_int64_t) :: restored
      integer(c_int) :: code
    end function
    function c_wait(session, epoch, seconds) bind(C, name="tailrace_wait") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int64_t), value :: epoch
      real(c_double), value :: seconds
      integer(c_int) :: code
    end function
    function c_wait_all(session, seconds) bind(C, name="tailrace_wait_all") result(code)
      import; type(c_ptr), value :: session; real(c_double), value :: seconds; integer(c_int) :: code
    end function
    function c_epoch_state(session, epoch, info) bind(C, name="tailrace_epoch_state") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int64_t), value :: epoch
      type(epoch_info) :: info
      integer(c_int) :: code
    end function
    function c_files_begin(session) bind(C, name="tailrace_files_begin") result(code)
      import; type(c_ptr), value :: session; integer(c_int) :: code
    end function
    function c_files_route(session, name, path, path_bytes) bind(C, name="tailrace_files_route") result(code)
      import
      type(c_ptr), value :: session
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: path
      integer(c_int64_t), value :: path_bytes
      integer(c_int) :: code
    end function
    function c_files_save(session, epoch, whole) bind(C, name="tailrace_files_save") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int64_t), value :: epoch
      integer(c_int), value :: whole
      integer(c_int) :: code
    end function
    function c_files_restore(session, epoch, flags, restored) bind(C, name="tailrace_files_restore") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int64_t), value :: epoch
      integer(c_int), value :: flags
      integer(c_int64_t) :: restored
      integer(c_int) :: code
    end function
    function c_files_find(session, rank, name, path, path_bytes) bind(C, name="tailrace_files_find") result(code)
      import
      type(c_ptr), value :: session
      integer(c_int32_t), value :: rank
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), value :: path
      integer(c_int64_t), value :: path_bytes
      integer(c_int) :: code
    end function
    function c_files_release(session) bind(C, name="tailrace_files_release") result(code)
      import; type(c_ptr), value :: session; integer(c_int) :: code
    end function
    function c_should_save(session, yes) bind(C, name="tailrace_should_save") result(code)
      import; type(c_ptr), value :: session; integer(c_int) :: yes, code
    end function
    function c_should_stop(session, why) bind(C, name="tailrace_should_stop") result(code)
      import; type(c_ptr), value :: session; type(c_ptr) :: why; integer(c_int) :: code
    end function
  end interface

contains

  ! ---- texts and failures ---------------------------------------------------------------------------------

  function c_text(text)
    character(*), intent(in) :: text
    character(kind=c_char, len=:), allocatable :: c_text
    c_text = trim(text)//c_null_char
  end function

  function f_text(text)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: f_text
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    if (.not. c_associated(text)) then
      f_text = ""
      return
    end if
    call c_f_pointer(text, letters, [c_strlen(text)])
    allocate (character(size(letters)) :: f_text)
    do i = 1, size(letters)
      f_text(i:i) = letters(i)
    end do
  end function

  ! What every procedure ends with.
  subroutine finish(code, stat, errmsg)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    if (present(stat)) stat = code
    if (code == tailrace_ok) return
    if (present(errmsg)) errmsg = f_text(c_error())
    if (present(stat)) return
    write (error_unit, "(2a)") "tailrace: ", f_text(c_error())
    flush (error_unit)
    error stop 1
  end subroutine

  function tailrace_version() result(version)
    character(:), allocatable :: version
    version = f_text(c_version())
  end function

  ! ---- options ------------------------------------------------------------------------------------------

  subroutine set_text(self, key, value, stat, errmsg)
    class(tailrace_options), intent(inout) :: self
    character(*), intent(in) :: key, value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    if (.not. c_associated(self%handle)) self%handle = c_options_new()
    call finish(c_options_set(self%handle, c_text(key), c_text(value)), stat, errmsg)
  end subroutine

  subroutine set_int32(self, key, value, stat, errmsg)
    class(tailrace_options), intent(inout) :: self
    character(*), intent(in) :: key
    integer(int32), intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%set_int64(key, int(value, int64), stat, errmsg)
  end subroutine

  subroutine set_int64(self, key, value, stat, errmsg)
    class(tailrace_options), intent(inout) :: self
    character(*), intent(in) :: key
    integer(int64), intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(20) :: text
    write (text, "(i0)") value
    call self%set_text(key, text, stat, errmsg)
  end subroutine

  subroutine set_real(self, key, value, stat, errmsg)
    class(tailrace_options), intent(inout) :: self
    character(*), intent(in) :: key
    real(real64), intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(32) :: text
    write (text, "(es24.16)") value
    call self%set_text(key, adjustl(text), stat, errmsg)
  end subroutine

  subroutine set_logical(self, key, value, stat, errmsg)
    class(tailrace_options), intent(inout) :: self
    character(*), intent(in) :: key
    logical, intent(in) :: value
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%set_text(key, merge("yes", "no ", value), stat, errmsg)
  end subroutine

  ! Adds the settings of a file.
  subroutine load(self, path, stat, errmsg)
    class(tailrace_options), intent(inout) :: self
    character(*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    if (.not. c_associated(self%handle)) self%handle = c_options_new()
    call finish(c_options_load(self%handle, c_text(path)), stat, errmsg)
  end subroutine

  impure elemental subroutine free_options(self)
    type(tailrace_options), intent(inout) :: self
    call c_options_free(self%handle)
    self%handle = c_null_ptr
  end subroutine

  ! ---- sessions -----------------------------------------------------------------------------------------

  function handle_of(options) result(handle)
    type(tailrace_options), intent(in), optional :: options
    type(c_ptr) :: handle
    handle = c_null_ptr
    if (present(options)) handle = options%handle
  end function

  ! Without ranks. Without options: defaults, environment, and the file that TAILRACE_CONFIG names.
  subroutine open_alone(self, options, stat, errmsg)
    class(tailrace_session), intent(inout) :: self
    type(tailrace_options), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    call finish(c_open(handle_of(options), self%handle), stat, errmsg)
  end subroutine

#ifdef TAILRACE_MPI
  ! On a communicator of the module mpi or of mpif.h. Collective.
  subroutine open_mpi(self, communicator, options, stat, errmsg)
    class(tailrace_session), intent(inout) :: self
    integer, intent(in) :: communicator
    type(tailrace_options), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    call finish(c_open_mpi(int(communicator, c_int), handle_of(options), self%handle), stat, errmsg)
  end subroutine
#endif

#ifdef TAILRACE_MPI_F08
  subroutine open_mpi_f08(self, communicator, options, stat, errmsg)
    class(tailrace_session), intent(inout) :: self
    type(MPI_Comm), intent(in) :: communicator
    type(tailrace_options), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%open_mpi(communicator%MPI_VAL, options, stat, errmsg)
  end subroutine
#endif

  ! Waits for all flushes; stat is the first failure among them. Collective.
  subroutine close_session(self, stat, errmsg)
    class(tailrace_session), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: handle
    handle = self%handle
    self%handle = c_null_ptr
    call finish(c_close(handle), stat, errmsg)
  end subroutine

  logical function is_open(self)
    class(tailrace_session), intent(in) :: self
    is_open = c_associated(self%handle)
  end function

  ! This rank, counted from 0 as in MPI, and the number of ranks. -1 and 0 without a session.
  integer function rank_of(self)
    class(tailrace_session), intent(in) :: self
    rank_of = c_rank(self%handle)
  end function

  integer function rank_count(self)
    class(tailrace_session), intent(in) :: self
    rank_count = c_rank_count(self%handle)
  end function

  ! The value of a setting as this session uses it. Empty for an unknown key.
  function setting(self, key)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: key
    character(:), allocatable :: setting
    setting = f_text(c_setting(self%handle, c_text(key)))
  end function

  ! ---- what to save ---------------------------------------------------------------------------------------

  ! A variable of this rank, as plain bytes. It must be contiguous.
  subroutine register_region(self, name, memory, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_region(self%handle, c_text(name), memory, 0_c_int), stat, errmsg)
  end subroutine

  ! A variable that has the same value on all ranks, as plain bytes. It must be contiguous. Any number of ranks may
  ! restore it. If the values differ, a rank that saved one gets its own back, and a new rank gets that of rank 0.
  subroutine register_replicated(self, name, memory, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_region(self%handle, c_text(name), memory, 2_c_int), stat, errmsg)
  end subroutine

  ! Gives a registered name a new place and size.
  subroutine update_region(self, name, memory, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_region(self%handle, c_text(name), memory, 1_c_int), stat, errmsg)
  end subroutine

  ! This rank's piece of a global array. Element (1, 1, ...) of `memory` is element `first` of the whole, whose
  ! extents are `global_shape`. gaps, overlap: declarations, as TAILRACE_ARRAY_GAPS and TAILRACE_ARRAY_OVERLAP.
  subroutine register_array32(self, name, memory, global_shape, first, gaps, overlap, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer(int32), intent(in) :: global_shape(:), first(:)
    logical, intent(in), optional :: gaps, overlap
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%register_array64(name, memory, int(global_shape, int64), int(first, int64), gaps, overlap, stat, errmsg)
  end subroutine

  subroutine register_array64(self, name, memory, global_shape, first, gaps, overlap, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer(int64), intent(in) :: global_shape(:), first(:)
    logical, intent(in), optional :: gaps, overlap
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_array(self%handle, c_text(name), memory, dimensions_of(global_shape, first), global_shape, first, &
                        flags_of(gaps, overlap), 0_c_int), stat, errmsg)
  end subroutine

  subroutine update_array32(self, name, memory, global_shape, first, gaps, overlap, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer(int32), intent(in) :: global_shape(:), first(:)
    logical, intent(in), optional :: gaps, overlap
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%update_array64(name, memory, int(global_shape, int64), int(first, int64), gaps, overlap, stat, errmsg)
  end subroutine

  subroutine update_array64(self, name, memory, global_shape, first, gaps, overlap, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer(int64), intent(in) :: global_shape(:), first(:)
    logical, intent(in), optional :: gaps, overlap
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_array(self%handle, c_text(name), memory, dimensions_of(global_shape, first), global_shape, first, &
                        flags_of(gaps, overlap), 1_c_int), stat, errmsg)
  end subroutine

  ! Their number of elements; -1, which fits no memory, if they differ.
  pure integer(c_int) function dimensions_of(global_shape, first)
    integer(int64), intent(in) :: global_shape(:), first(:)
    dimensions_of = merge(size(first), -1, size(first) == size(global_shape))
  end function

  pure integer(c_int64_t) function flags_of(gaps, overlap) result(flags)
    logical, intent(in), optional :: gaps, overlap
    flags = 0
    if (present(gaps)) flags = ior(flags, merge(1_c_int64_t, 0_c_int64_t, gaps))
    if (present(overlap)) flags = ior(flags, merge(2_c_int64_t, 0_c_int64_t, overlap))
  end function

  ! This rank's items of a list: items 1 to `count` along the last dimension of `memory`, which has room for
  ! more. The whole list is the ranks' items in the order of ranks. A save takes as many as `count` says then, and
  ! a restore sets `count`: to what this rank had, or on another number of ranks to an even share. It fails if
  ! there is no room. `memory` and `count` must live as any registered variable.
  subroutine register_list32(self, name, memory, count, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer(int32), target :: count
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_list(self%handle, c_text(name), memory, c_loc(count), 4_c_size_t), stat, errmsg)
  end subroutine

  subroutine register_list64(self, name, memory, count, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    type(*), dimension(..), target :: memory
    integer(int64), target :: count
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_list(self%handle, c_text(name), memory, c_loc(count), 8_c_size_t), stat, errmsg)
  end subroutine

  ! Says which rank gets which item of a list when another number of ranks restores it, in place of an even
  ! share. `owner` is called for every item on every rank, and returns a rank from 0.
  subroutine set_list_owner(self, name, owner, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    procedure(tailrace_owner) :: owner
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_list_owner(self%handle, c_text(name), c_funloc(owner), c_null_ptr), stat, errmsg)
  end subroutine

  ! Later epochs do not contain it.
  subroutine remove(self, name, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call finish(c_unregister(self%handle, c_text(name)), stat, errmsg)
  end subroutine

  ! ---- saving -------------------------------------------------------------------------------------------

  subroutine save32(self, epoch, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int32), intent(in) :: epoch
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%save64(int(epoch, int64), stat, errmsg)
  end subroutine

  subroutine save64(self, epoch, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int64), intent(in) :: epoch
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    call finish(c_save(self%handle, epoch), stat, errmsg)
  end subroutine

  ! Waits until the epoch has ended; `seconds`: at most so long, else stat is tailrace_timeout.
  subroutine wait32(self, epoch, seconds, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int32), intent(in) :: epoch
    real(real64), intent(in), optional :: seconds
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%wait64(int(epoch, int64), seconds, stat, errmsg)
  end subroutine

  subroutine wait64(self, epoch, seconds, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int64), intent(in) :: epoch
    real(real64), intent(in), optional :: seconds
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    call finish(c_wait(self%handle, epoch, limit_of(seconds)), stat, errmsg)
  end subroutine

  subroutine wait_all(self, seconds, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    real(real64), intent(in), optional :: seconds
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    call finish(c_wait_all(self%handle, limit_of(seconds)), stat, errmsg)
  end subroutine

  pure real(c_double) function limit_of(seconds) result(limit)
    real(real64), intent(in), optional :: seconds
    limit = -1  ! no limit
    if (present(seconds)) limit = max(seconds, 0.0_real64)
  end function

  ! What this rank knows of an epoch. Never blocks.
  subroutine state32(self, epoch, info, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int32), intent(in) :: epoch
    type(tailrace_epoch), intent(out) :: info
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%state64(int(epoch, int64), info, stat, errmsg)
  end subroutine

  subroutine state64(self, epoch, info, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int64), intent(in) :: epoch
    type(tailrace_epoch), intent(out) :: info
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(epoch_info), target :: found
    integer(c_int) :: code
    call c_forget()
    code = c_epoch_state(self%handle, epoch, found)
    if (code == tailrace_ok) then
      info%epoch = found%epoch
      info%run = found%run
      info%state = found%state
      info%why_code = found%why_code
      info%why = f_text(c_loc(found%why))
      info%captured_bytes = found%captured_bytes
      info%blocked_seconds = found%blocked_seconds
      info%flush_seconds = found%flush_seconds
      info%losses_survived = found%losses_survived
    end if
    call finish(code, stat, errmsg)
  end subroutine

  ! ---- when to save, when to stop ---------------------------------------------------------------------------

  subroutine should_save(self, yes, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    logical, intent(out) :: yes
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: answer, code
    answer = 0
    call c_forget()
    code = c_should_save(self%handle, answer)
    yes = answer /= 0
    call finish(code, stat, errmsg)
  end subroutine

  ! `why`: the reason, such as "signal TERM at rank 3"; empty if there is none.
  subroutine should_stop(self, yes, why, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    logical, intent(out) :: yes
    character(:), allocatable, intent(out), optional :: why
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(c_ptr) :: reason
    integer(c_int) :: code
    reason = c_null_ptr
    call c_forget()
    code = c_should_stop(self%handle, reason)
    yes = c_associated(reason)
    if (present(why)) why = f_text(reason)
    call finish(code, stat, errmsg)
  end subroutine

  ! ---- restoring ----------------------------------------------------------------------------------------

  ! Fills everything registered, or `names` of it, from `epoch`, or from the newest epoch. `restored` is its
  ! number. found = .false. says that there is no epoch at all: a first run. (Without found= that is a failure,
  ! tailrace_not_found.) Collective.
  subroutine restore32(self, restored, found, epoch, names, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int32), intent(inout) :: restored
    logical, intent(out), optional :: found
    integer(int64), intent(in), optional :: epoch
    character(*), intent(in), optional :: names(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(int64) :: number
    number = restored
    call self%restore64(number, found, epoch, names, stat, errmsg)
    restored = int(number, int32)
  end subroutine

  subroutine restore64(self, restored, found, epoch, names, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int64), intent(inout) :: restored
    logical, intent(out), optional :: found
    integer(int64), intent(in), optional :: epoch
    character(*), intent(in), optional :: names(:)
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: wanted, number
    integer(c_int) :: code
    wanted = newest
    if (present(epoch)) wanted = epoch
    call c_forget()
    if (present(names)) then
      code = restore_some(self%handle, wanted, names, number)
    else
      code = c_restore(self%handle, wanted, number)
    end if
    call finish_restore(code, number, restored, found, stat, errmsg)
  end subroutine

  ! ---- files of the program -----------------------------------------------------------------------------

  ! Begins this rank's files for one save.
  subroutine files_begin(self, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    call finish(c_files_begin(self%handle), stat, errmsg)
  end subroutine

  ! `path`: where the program is to write its file `name`. Empty after a failure.
  subroutine files_route(self, name, path, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    character(:), allocatable, intent(out) :: path
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(kind=c_char), target :: letters(max_path_bytes)
    integer(c_int) :: code
    letters(1) = c_null_char
    call c_forget()
    code = c_files_route(self%handle, c_text(name), c_loc(letters), int(max_path_bytes, c_int64_t))
    path = f_text(c_loc(letters))
    call finish(code, stat, errmsg)
  end subroutine

  ! save for the files that were routed and the registered variables. Close the files before; afterwards they
  ! are gone. whole = .false.: the program could not write its files, and nothing of the epoch is kept
  ! (tailrace_aborted).
  subroutine files_save32(self, epoch, whole, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int32), intent(in) :: epoch
    logical, intent(in), optional :: whole
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call self%files_save64(int(epoch, int64), whole, stat, errmsg)
  end subroutine

  subroutine files_save64(self, epoch, whole, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int64), intent(in) :: epoch
    logical, intent(in), optional :: whole
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int) :: all
    all = 1
    if (present(whole)) all = merge(1_c_int, 0_c_int, whole)
    call c_forget()
    call finish(c_files_save(self%handle, epoch, all), stat, errmsg)
  end subroutine

  ! restore for the registered variables and this rank's files. found: as in restore. of_all_ranks = .true.: every
  ! rank may ask for every rank's files. Collective.
  subroutine files_restore32(self, restored, found, epoch, of_all_ranks, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int32), intent(inout) :: restored
    logical, intent(out), optional :: found
    integer(int64), intent(in), optional :: epoch
    logical, intent(in), optional :: of_all_ranks
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(int64) :: number
    number = restored
    call self%files_restore64(number, found, epoch, of_all_ranks, stat, errmsg)
    restored = int(number, int32)
  end subroutine

  subroutine files_restore64(self, restored, found, epoch, of_all_ranks, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer(int64), intent(inout) :: restored
    logical, intent(out), optional :: found
    integer(int64), intent(in), optional :: epoch
    logical, intent(in), optional :: of_all_ranks
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    integer(c_int64_t) :: wanted, number
    integer(c_int) :: flags, code
    wanted = newest
    if (present(epoch)) wanted = epoch
    flags = 0
    if (present(of_all_ranks)) flags = merge(1_c_int, 0_c_int, of_all_ranks)
    call c_forget()
    code = c_files_restore(self%handle, wanted, flags, number)
    call finish_restore(code, number, restored, found, stat, errmsg)
  end subroutine

  ! `path`: where the restored file `name` is. Without `rank` (from 0): this rank's, otherwise the only one of
  ! that name. Empty after a failure.
  subroutine files_find(self, name, path, rank, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    character(*), intent(in) :: name
    character(:), allocatable, intent(out) :: path
    integer, intent(in), optional :: rank
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    character(kind=c_char), target :: letters(max_path_bytes)
    integer(c_int32_t) :: of_rank
    integer(c_int) :: code
    of_rank = any_rank
    if (present(rank)) of_rank = int(rank, c_int32_t)
    letters(1) = c_null_char
    call c_forget()
    code = c_files_find(self%handle, of_rank, c_text(name), c_loc(letters), int(max_path_bytes, c_int64_t))
    path = f_text(c_loc(letters))
    call finish(code, stat, errmsg)
  end subroutine

  ! Removes the files that were restored. The epoch stays.
  subroutine files_release(self, stat, errmsg)
    class(tailrace_session), intent(in) :: self
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call c_forget()
    call finish(c_files_release(self%handle), stat, errmsg)
  end subroutine

  ! What every restore ends with.
  subroutine finish_restore(code, number, restored, found, stat, errmsg)
    integer(c_int), intent(in) :: code
    integer(c_int64_t), intent(in) :: number
    integer(int64), intent(inout) :: restored
    logical, intent(out), optional :: found
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    if (code == tailrace_ok) restored = number
    if (present(found)) found = code == tailrace_ok
    if (present(found) .and. code == tailrace_not_found) then
      call finish(tailrace_ok, stat, errmsg)
    else
      call finish(code, stat, errmsg)
    end if
  end subroutine

  integer(c_int) function restore_some(handle, epoch, names, restored) result(code)
    type(c_ptr), intent(in) :: handle
    integer(c_int64_t), intent(in) :: epoch
    character(*), intent(in) :: names(:)
    integer(c_int64_t), intent(out) :: restored
    character(kind=c_char, len=len(names) + 1), target :: texts(size(names))
    type(c_ptr) :: pointers(size(names) + 1)
    integer :: i
    do i = 1, size(names)
      texts(i) = c_text(names(i))
      pointers(i) = c_loc(texts(i))
    end do
    code = c_restore_some(handle, epoch, pointers, size(names, kind=c_size_t), restored)
  end function

end module
