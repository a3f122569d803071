! files.f90 DIRECTORY - files that a Fortran program writes by itself, saved and brought back.
! Prints what is wrong, and ends with status 1.
program files
  use tailrace
  implicit none
  type(tailrace_options) :: options
  type(tailrace_session) :: session
  type(tailrace_epoch) :: epoch
  character(:), allocatable :: path, again
  character(300) :: directory, problem
  integer :: wrong = 0, status, step, unit
  integer, target :: number = 17
  logical :: found, there

  call get_command_argument(1, directory)
  call options%set("shared_dir", trim(directory)//"/shared")
  call options%set("local_dir", trim(directory)//"/local")
  call options%set("record", .false.)
  call session%open(options)
  call session%register("number", number)
  step = 5
  call session%files_restore(step, found)
  call check(.not. found .and. step == 5, "there is no epoch yet")
  call session%files_restore(step, stat=status, errmsg=problem)
  call check(status == tailrace_not_found .and. problem /= "", "no epoch is an error without found=")
  call session%files_route("fields/u.txt", path, stat=status, errmsg=problem)
  call check(status == tailrace_failed_state .and. path == "", "files must be begun: "//problem)

  call session%files_begin()
  call session%files_route("../u.txt", path, stat=status, errmsg=problem)
  call check(status == tailrace_invalid_argument .and. path == "", "a name that leads outside: "//problem)
  call session%files_route("fields/u.txt  ", path)
  call session%files_route("fields/u.txt", again)
  call check(path == again .and. index(path, "fields/u.txt") == len(path) - 11, "the same path: "//path)
  call write_number(path, 42)
  call session%files_save(10)
  inquire (file=path, exist=there)
  call check(.not. there, "a file that was saved is gone")
  call session%wait(10)

  call session%files_begin()
  call session%files_save(20, whole=.false., stat=status, errmsg=problem)
  call check(status == tailrace_aborted, "files that are not whole: "//problem)
  call session%wait_all(stat=status)
  call session%state(20, epoch)
  call check(epoch%state == tailrace_state_failed, "an epoch whose files are not whole has failed")
  call session%close(stat=status)

  number = 0
  call session%open(options)
  call session%register("number", number)
  call session%files_restore(step, found, of_all_ranks=.true.)
  call check(found .and. step == 10 .and. number == 17, "the files and the variables of epoch 10")
  call session%files_find("fields/u.txt", path)
  call session%files_find("fields/u.txt", again, rank=0)
  open (newunit=unit, file=path, action="read")
  read (unit, *) number
  close (unit)
  call check(number == 42 .and. path == again, "the file has what was written")
  call session%files_find("fields/v.txt", path, stat=status, errmsg=problem)
  call check(status == tailrace_not_found .and. path == "", "no such file: "//problem)
  call session%files_find("fields/u.txt", path, rank=3, stat=status, errmsg=problem)
  call check(status /= tailrace_ok, "no such rank: "//problem)
  call session%files_release()
  inquire (file=again, exist=there)
  call check(.not. there, "released files are gone")
  call session%close()
  if (wrong > 0) error stop 1

contains

  subroutine check(good, what)
    logical, intent(in) :: good
    character(*), intent(in) :: what
    if (good) return
    wrong = wrong + 1
    print "(2a)", "wrong: ", trim(what)
  end subroutine

  subroutine write_number(name, value)
    character(*), intent(in) :: name
    integer, intent(in) :: value
    integer :: u
    open (newunit=u, file=name, action="write")
    write (u, *) value
    close (u)
  end subroutine

end program
