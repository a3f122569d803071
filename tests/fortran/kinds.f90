! kinds.f90 DIRECTORY [stop] - variables of every kind and rank through a session without ranks, and mistakes.
! With "stop" it makes a mistake without stat=, which ends it. Prints what is wrong, and ends with status 1.
program kinds
  use tailrace
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64, real128
  implicit none

  type :: particle
    integer :: number = 0
    real(real64) :: place(3) = 0
  end type
  type :: state
    integer(int8) :: i1 = 0
    integer(int16) :: i2(2) = 0
    integer(int32) :: i4(2, 2) = 0
    integer(int64) :: i8(1, 2, 2) = 0
    real(real32) :: r4(1, 1, 2, 2) = 0
    real(real64) :: r8(1, 1, 1, 2, 2) = 0
    real(real128) :: r16(1, 1, 1, 1, 2, 2) = 0
    complex(real32) :: c4(1, 1, 1, 1, 1, 2, 2) = 0
    complex(real64) :: c8 = 0
    logical :: yes(3) = .false.
    character(5) :: words(2) = ""
    type(particle) :: particles(3)
    real(real64) :: nothing(0)
    real(real64) :: grid(0:5, 0:4) = 0
  end type

  type(tailrace_options) :: options
  type(tailrace_session) :: session
  type(tailrace_epoch) :: epoch
  type(state), target :: saved, read
  character(500) :: directory, problem
  integer :: wrong = 0, status, step
  integer(int64) :: long_step
  logical :: found, yes

  call get_command_argument(1, directory)
  call options%set("shared_dir", directory)
  call options%set("files", 1)
  call options%set("keep_shared", 8_int64)
  call options%set("record", .false.)
  call options%set("fill", 1, stat=status, errmsg=problem)
  call check(status == tailrace_invalid_argument .and. index(problem, "fill") > 0, "an unknown key: "//problem)
  call check(.not. session%is_open() .and. session%rank_count() == 0, "a session that is not open")
  call session%save(1, stat=status, errmsg=problem)
  call check(status == tailrace_invalid_argument, "a save without a session: "//problem)
  call session%open(options)
  call check(session%is_open() .and. session%rank() == 0 .and. session%rank_count() == 1, "an open session")
  call check(session%setting("files") == "1" .and. session%setting("record") == "no", "settings")
  if (command_argument_count() > 1) call session%remove("what is not there")

  call fill(saved)
  call register(saved)
  step = 7
  call session%restore(step, found)
  call check(.not. found .and. step == 7, "there is no epoch yet")
  call session%restore(step, stat=status, errmsg=problem)
  call check(status == tailrace_not_found .and. len_trim(problem) > 0, "no epoch is an error without found=")
  call session%should_save(yes)
  call check(.not. yes, "it is never time to save by itself")
  call session%save(10)
  call session%wait(10)
  call session%state(10, epoch)
  call check(epoch%state == tailrace_state_committed .and. epoch%captured_bytes > 0 .and. epoch%why == "", "a state")
  call session%save(20_int64)
  call session%wait(20_int64, 60.0_real64)
  call session%wait_all(60.0_real64)
  call session%save(20, stat=status, errmsg=problem)
  call check(status /= tailrace_ok, "an epoch is saved once")
  call mistakes()
  call session%close()
  call check(.not. session%is_open(), "a closed session")

  call session%open(options)
  call register(read)
  call session%restore(long_step, epoch=10_int64)
  call check(long_step == 10, "an epoch by its number")
  call compare()
  read%i4 = 0
  read%i1 = 0
  call session%restore(step, names=["i4"])
  call check(step == 20 .and. all(read%i4 == saved%i4) .and. read%i1 == 0, "one name alone")
  call session%close()
  if (wrong > 0) error stop 1

contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(*), intent(in) :: what
    if (good) return
    print "(2a)", "wrong: ", trim(what)
    wrong = wrong + 1
  end subroutine

  subroutine fill(s)
    type(state), intent(inout) :: s
    integer :: i
    s%i1 = -1_int8
    s%i2 = [-2_int16, 2_int16]
    s%i4 = reshape([1, 2, 3, 4], [2, 2])
    s%i8 = reshape([1_int64, -huge(1_int64), 3_int64, 4_int64], [1, 2, 2])
    s%r4 = reshape([0.5, 1.5, 2.5, 3.5], [1, 1, 2, 2])
    s%r8 = reshape([0.1d0, 0.2d0, 0.3d0, 0.4d0], [1, 1, 1, 2, 2])
    s%r16 = reshape([0.1_real128, 0.2_real128, 0.3_real128, 0.4_real128], [1, 1, 1, 1, 2, 2])
    s%c4 = reshape([(1, 2), (3, 4), (5, 6), (7, 8)], [1, 1, 1, 1, 1, 2, 2])
    s%c8 = (1d0, -1d0)
    s%yes = [.true., .false., .true.]
    s%words = ["water", "mill "]
    do i = 1, 3
      s%particles(i) = particle(i, [1d0*i, 2d0*i, 3d0*i])
    end do
    s%grid = reshape([(1d0*i, i=1, 30)], [6, 5])
  end subroutine

  subroutine register(s)
    type(state), intent(inout), target :: s
    call session%register("i1", s%i1)
    call session%register("i2", s%i2)
    call session%register("i4", s%i4)
    call session%register("i8", s%i8)
    call session%register("r4", s%r4)
    call session%register("r8", s%r8)
    call session%register("r16", s%r16)
    call session%register("c4", s%c4)
    call session%register("c8", s%c8)
    call session%register("yes", s%yes)
    call session%register("words", s%words)
    call session%register("particles", s%particles)
    call session%register("nothing", s%nothing)
    ! A piece without its ghosts; one column in two; a component of a derived type; what has no name in tailrace.h.
    call session%register("inner", s%grid(1:4, 1:3), global_shape=[4, 3], first=[1, 1])
    call session%register("in two", s%grid(0, ::2), global_shape=[3_int64], first=[1_int64])
    call session%register("numbers", s%particles%number, global_shape=[5], first=[2], gaps=.true.)
    call session%register("text", s%words, global_shape=[2], first=[1])
    call session%register("i4 as an array", s%i4, [2, 2], [1, 1])
    call session%update("i4 as an array", s%i4(:, 1:1), [2, 1], [1, 1])
    call session%update("i2", s%i2(1:1))
    call session%register("not for long", s%c8)
    call session%remove("not for long")
  end subroutine

  subroutine compare()
    integer :: i
    call check(read%i1 == saved%i1, "int8")
    call check(read%i2(1) == saved%i2(1) .and. read%i2(2) == 0, "int16, updated")
    call check(all(read%i4 == saved%i4), "int32")
    call check(all(read%i8 == saved%i8), "int64")
    call check(all(read%r4 == saved%r4), "real32")
    call check(all(read%r8 == saved%r8), "real64")
    call check(all(read%r16 == saved%r16), "real128")
    call check(all(read%c4 == saved%c4), "complex of real32")
    call check(read%c8 == saved%c8, "complex of real64")
    call check(all(read%yes .eqv. saved%yes), "logical")
    call check(all(read%words == saved%words), "character")
    do i = 1, 3
      call check(read%particles(i)%number == i .and. all(read%particles(i)%place == [1d0*i, 2d0*i, 3d0*i]), "a type")
    end do
    call check(all(read%grid(1:4, 1:3) == saved%grid(1:4, 1:3)), "a section")
    call check(all(read%grid(0, ::2) == saved%grid(0, ::2)), "a section with strides")
    call check(all(read%grid(1:4, 0::4) == 0) .and. all(read%grid(5, :) == 0) .and. all(read%grid(0, 1::2) == 0), &
               "what lies outside a section is left alone")
  end subroutine

  subroutine refused(what, words)
    character(*), intent(in) :: what, words
    call check(status == tailrace_invalid_argument .and. index(problem, words) > 0, &
               what//": "//words//" is not in: "//problem)
  end subroutine

  subroutine mistakes()
    integer, target :: grid(4, 4)
    call session%register("a", grid(::2, 1), stat=status, errmsg=problem)
    call refused("a region with strides", "not contiguous")
    call session%register("a", grid, [4], [1], stat=status, errmsg=problem)
    call refused("too few numbers", "2 dimensions, and global_shape and first have 1")
    call session%register("a", grid, [4, 4], [1], stat=status, errmsg=problem)
    call refused("as many numbers", "global_shape and first")
    call session%register("a", grid, [4, 4], [0, 1], stat=status, errmsg=problem)
    call refused("an index of C", "count from 1")
    call session%register("a", grid(4:1:-1, :), [4, 4], [1, 1], stat=status, errmsg=problem)
    call refused("a section that runs backwards", "backwards")
    call session%register("a", grid, [3, 4], [1, 1], stat=status, errmsg=problem)
    call check(status == tailrace_invalid_argument .and. len_trim(problem) > 0, "a piece beyond the whole")
    call session%register("i1", grid, stat=status)
    call check(status == tailrace_already_exists, "a name twice")
    problem = "as before"
    call session%register("a", grid, stat=status, errmsg=problem)
    call check(status == tailrace_ok .and. problem == "as before", "errmsg stays without a failure")
  end subroutine

end program
