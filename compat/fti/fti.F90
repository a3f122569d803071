! FTI's interface in Fortran, with tailrace beneath. docs/fti.md tells how to use and link it.
!
! The procedures do what the functions of fti.h with the same names do. The last argument gets their result.
!
! FTI_Protect takes a variable of any type, kind and rank, which must be contiguous, and stay where it is until
! it is protected anew or FTI_Finalize is called. Give it the POINTER or TARGET attribute.
module FTI
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer, parameter, public :: FTI_SCES = 0
  integer, parameter, public :: FTI_NSCS = -1
  integer, parameter, public :: FTI_ATTRIBUTE_NAME = 1
  integer, parameter, public :: FTI_ATTRIBUTE_DIM = 2

  ! Types of data, named after the language's types and their kinds. FTI_Init sets them.
  integer, public :: FTI_CHARACTER1, FTI_LOGICAL1, FTI_LOGICAL2, FTI_LOGICAL4, FTI_LOGICAL8
  integer, public :: FTI_INTEGER1, FTI_INTEGER2, FTI_INTEGER4, FTI_INTEGER8
  integer, public :: FTI_REAL4, FTI_REAL8, FTI_REAL10, FTI_REAL16
  integer, public :: FTI_COMPLEX4, FTI_COMPLEX8, FTI_COMPLEX10, FTI_COMPLEX16

  public :: FTI_Init, FTI_Status, FTI_Finalize
  public :: FTI_InitType, FTI_InitCompositeType, FTI_AddScalarField, FTI_AddVectorField
  public :: FTI_Protect, FTI_GetStoredSize, FTI_Realloc
  public :: FTI_Checkpoint, FTI_Snapshot
  public :: FTI_Recover, FTI_RecoverVarInit, FTI_RecoverVar, FTI_RecoverVarFinalize
  ! These fail, and say so once.
  public :: FTI_InitICP, FTI_AddVarICP, FTI_FinalizeICP
  public :: FTI_setIDFromString, FTI_getIDFromString, FTI_SetAttribute

  interface FTI_Protect
    module procedure protect_variable, protect_address
  end interface

  interface FTI_Realloc
    module procedure realloc_address
  end interface

  interface FTI_SetAttribute
    module procedure set_name, set_extents32, set_extents64
  end interface

  interface
    ! Of this library.
    function init_c(config_file, communicator) bind(C, name='FTI_Init_fort_wrapper') result(code)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: config_file(*)
      integer(c_int), intent(inout) :: communicator
      integer(c_int) :: code
    end function
    function protect_descriptor(id, variable) bind(C, name='tailrace_fti_protect') result(code)
      import :: c_int
      integer(c_int), value :: id
      type(*), dimension(..), intent(in), target :: variable
      integer(c_int) :: code
    end function
    ! A type of these bytes.
    function type_c(bytes) bind(C, name='FTI_InitType_wrapper') result(handle)
      import :: c_int, c_size_t
      integer(c_size_t), value :: bytes
      integer(c_int) :: handle
    end function
    function composite_c(name, bytes) bind(C, name='FTI_InitCompositeType_wrapper') result(handle)
      import :: c_int, c_size_t, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), value :: bytes
      integer(c_int) :: handle
    end function
    function set_attribute_c() bind(C, name='tailrace_fti_set_attribute') result(code)
      import :: c_int
      integer(c_int) :: code
    end function

    ! Of fti.h.
    function status_c() bind(C, name='FTI_Status') result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function finalize_c() bind(C, name='FTI_Finalize') result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function scalar_field_c(type, name, field, offset) bind(C, name='FTI_AddScalarField') result(code)
      import :: c_int, c_int64_t, c_char
      integer(c_int), value :: type, field
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: offset
      integer(c_int) :: code
    end function
    function vector_field_c(type, name, field, offset, dimensions, extents) bind(C, name='FTI_AddVectorField') &
        result(code)
      import :: c_int, c_int64_t, c_char
      integer(c_int), value :: type, field, dimensions
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: offset
      integer(c_int64_t), intent(in) :: extents(*)
      integer(c_int) :: code
    end function
    function protect_c(id, address, elements, type) bind(C, name='FTI_Protect') result(code)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int), value :: id, type
      type(c_ptr), value :: address
      integer(c_int64_t), value :: elements
      integer(c_int) :: code
    end function
    function stored_size_c(id) bind(C, name='FTI_GetStoredSize') result(bytes)
      import :: c_int, c_int64_t
      integer(c_int), value :: id
      integer(c_int64_t) :: bytes
    end function
    function realloc_c(id, address) bind(C, name='FTI_Realloc') result(moved)
      import :: c_int, c_ptr
      integer(c_int), value :: id
      type(c_ptr), value :: address
      type(c_ptr) :: moved
    end function
    function checkpoint_c(id, level) bind(C, name='FTI_Checkpoint') result(code)
      import :: c_int
      integer(c_int), value :: id, level
      integer(c_int) :: code
    end function
    function snapshot_c() bind(C, name='FTI_Snapshot') result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function recover_c() bind(C, name='FTI_Recover') result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function begin_recovering_c() bind(C, name='FTI_RecoverVarInit') result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function recover_one_c(id) bind(C, name='FTI_RecoverVar') result(code)
      import :: c_int
      integer(c_int), value :: id
      integer(c_int) :: code
    end function
    function end_recovering_c() bind(C, name='FTI_RecoverVarFinalize') result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function init_icp_c(id, level, activate) bind(C, name='FTI_InitICP') result(code)
      import :: c_int, c_bool
      integer(c_int), value :: id, level
      logical(c_bool), value :: activate
      integer(c_int) :: code
    end function
    function add_icp_c(id) bind(C, name='FTI_AddVarICP') result(code)
      import :: c_int
      integer(c_int), value :: id
      integer(c_int) :: code
    end function
    function finalize_icp_c() bind(C, name='FTI_FinalizeICP') result(code)
      import :: c_int
      integer(c_int) :: code
    end function
    function set_id_c(name) bind(C, name='FTI_setIDFromString') result(id)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: id
    end function
    function get_id_c(name) bind(C, name='FTI_getIDFromString') result(id)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int) :: id
    end function
  end interface

contains

  ! ---- begin and end ------------------------------------------------------------------------------------

  ! global_comm becomes the communicator of the program, a duplicate of what it was.
  subroutine FTI_Init(config_file, global_comm, err)
    character(len=*), intent(in) :: config_file
    integer, intent(inout) :: global_comm
    integer, intent(out) :: err

    err = init_c(c_text(config_file), global_comm)
    if (err == FTI_NSCS) return
    FTI_CHARACTER1 = type_c(1_c_size_t)
    FTI_LOGICAL1 = FTI_CHARACTER1
    FTI_INTEGER1 = FTI_CHARACTER1
    FTI_INTEGER2 = type_c(2_c_size_t)
    FTI_LOGICAL2 = FTI_INTEGER2
    FTI_INTEGER4 = type_c(4_c_size_t)
    FTI_LOGICAL4 = FTI_INTEGER4
    FTI_REAL4 = FTI_INTEGER4
    FTI_INTEGER8 = type_c(8_c_size_t)
    FTI_LOGICAL8 = FTI_INTEGER8
    FTI_REAL8 = FTI_INTEGER8
    FTI_COMPLEX4 = FTI_INTEGER8
    FTI_REAL16 = type_c(16_c_size_t)
    FTI_REAL10 = FTI_REAL16
    FTI_COMPLEX8 = FTI_REAL16
    FTI_COMPLEX16 = type_c(32_c_size_t)
    FTI_COMPLEX10 = FTI_COMPLEX16
  end subroutine

  subroutine FTI_Status(status)
    integer, intent(out) :: status
    status = status_c()
  end subroutine

  subroutine FTI_Finalize(err)
    integer, intent(out) :: err
    err = finalize_c()
  end subroutine

  ! ---- types of data ------------------------------------------------------------------------------------

  function FTI_InitType(size_F) result(handle)
    integer(c_size_t), intent(in) :: size_F
    integer :: handle
    handle = type_c(size_F)
  end function

  function FTI_InitCompositeType(name, size) result(handle)
    character(len=*), intent(in) :: name
    integer(c_size_t), intent(in) :: size
    integer :: handle
    handle = composite_c(c_text(name), size)
  end function

  function FTI_AddScalarField(complex_tid, name, field_tid, offset) result(code)
    integer, value :: complex_tid, field_tid
    character(len=*), intent(in) :: name
    integer(c_size_t), value :: offset
    integer :: code
    code = scalar_field_c(complex_tid, c_text(name), field_tid, int(offset, c_int64_t))
  end function

  function FTI_AddVectorField(complex_tid, name, field_tid, offset, ndims, dim_length) result(code)
    integer, value :: complex_tid, field_tid, ndims
    character(len=*), intent(in) :: name
    integer(c_size_t), value :: offset
    integer, intent(in) :: dim_length(*)
    integer :: code
    code = vector_field_c(complex_tid, c_text(name), field_tid, int(offset, c_int64_t), ndims, &
                          int(dim_length(1:max(ndims, 0)), c_int64_t))
  end function

  ! ---- what is saved ------------------------------------------------------------------------------------

  subroutine protect_variable(id_F, data, err)
    integer, intent(in) :: id_F
    type(*), dimension(..), intent(in), target :: data
    integer, intent(out) :: err
    err = protect_descriptor(id_F, data)
  end subroutine

  subroutine protect_address(id_F, ptr, count_F, tid, err)
    integer, intent(in) :: id_F, count_F, tid
    type(c_ptr), value :: ptr
    integer, intent(out) :: err
    err = protect_c(id_F, ptr, int(count_F, c_int64_t), tid)
  end subroutine

  subroutine FTI_GetStoredSize(id_F, size)
    integer, intent(in) :: id_F
    integer(c_int64_t) :: size
    size = stored_size_c(id_F)
  end subroutine

  subroutine realloc_address(id_F, ptr, ierr)
    integer, intent(in) :: id_F
    type(c_ptr) :: ptr
    integer, intent(out) :: ierr
    ptr = realloc_c(id_F, ptr)
    ierr = merge(FTI_SCES, FTI_NSCS, c_associated(ptr))
  end subroutine

  ! ---- checkpoints and recovering -----------------------------------------------------------------------

  subroutine FTI_Checkpoint(id_F, level, err)
    integer, intent(in) :: id_F, level
    integer, intent(out) :: err
    err = checkpoint_c(id_F, level)
  end subroutine

  subroutine FTI_Snapshot(err)
    integer, intent(out) :: err
    err = snapshot_c()
  end subroutine

  subroutine FTI_Recover(err)
    integer, intent(out) :: err
    err = recover_c()
  end subroutine

  subroutine FTI_RecoverVarInit(err)
    integer, intent(out) :: err
    err = begin_recovering_c()
  end subroutine

  subroutine FTI_RecoverVar(id, err)
    integer, intent(in) :: id
    integer, intent(out) :: err
    err = recover_one_c(id)
  end subroutine

  subroutine FTI_RecoverVarFinalize(err)
    integer, intent(out) :: err
    err = end_recovering_c()
  end subroutine

  ! ---- what tailrace does not have ----------------------------------------------------------------------

  subroutine FTI_InitICP(id_F, level, activate, err)
    integer, intent(in) :: id_F, level
    logical, intent(in) :: activate
    integer, intent(out) :: err
    err = init_icp_c(id_F, level, logical(activate, c_bool))
  end subroutine

  subroutine FTI_AddVarICP(id_F, err)
    integer, intent(in) :: id_F
    integer, intent(out) :: err
    err = add_icp_c(id_F)
  end subroutine

  subroutine FTI_FinalizeICP(err)
    integer, intent(out) :: err
    err = finalize_icp_c()
  end subroutine

  subroutine FTI_setIDFromString(name, id)
    character(len=*), intent(in) :: name
    integer, intent(out) :: id
    id = set_id_c(c_text(name))
  end subroutine

  subroutine FTI_getIDFromString(name, id)
    character(len=*), intent(in) :: name
    integer, intent(out) :: id
    id = get_id_c(c_text(name))
  end subroutine

  ! Of these the arguments only choose the procedure.
  subroutine set_name(id, attribute, flag, err)
    integer, intent(in) :: id, flag
    character(len=*), intent(in) :: attribute
    integer, intent(out) :: err
    err = set_attribute_c()
    if (id < 0 .or. flag < 0 .or. len(attribute) < 0) err = FTI_NSCS
  end subroutine

  subroutine set_extents32(id, attribute, flag, err)
    integer, intent(in) :: id, flag
    integer(c_int32_t), intent(in) :: attribute(:)
    integer, intent(out) :: err
    err = set_attribute_c()
    if (id < 0 .or. flag < 0 .or. size(attribute) < 0) err = FTI_NSCS
  end subroutine

  subroutine set_extents64(id, attribute, flag, err)
    integer, intent(in) :: id, flag
    integer(c_int64_t), intent(in) :: attribute(:)
    integer, intent(out) :: err
    err = set_attribute_c()
    if (id < 0 .or. flag < 0 .or. size(attribute) < 0) err = FTI_NSCS
  end subroutine

  ! ---- helpers ------------------------------------------------------------------------------------------

  ! Without the blanks at its end.
  pure function c_text(text) result(made)
    character(len=*), intent(in) :: text
    character(kind=c_char) :: made(len_trim(text) + 1)
    integer :: i
    do i = 1, len_trim(text)
      made(i) = text(i:i)
    end do
    made(len_trim(text) + 1) = c_null_char
  end function

end module
