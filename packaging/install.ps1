# Installs the undertone programs for this user:
#
#     irm @BASE_URL@/install.ps1 | iex
#
# Set $env:UNDERTONE_INSTALL to install to a folder other than %LOCALAPPDATA%\undertone\bin.
$ErrorActionPreference = "Stop"
$base = if ($env:UNDERTONE_BASE_URL) { $env:UNDERTONE_BASE_URL } else { "@BASE_URL@" }
$folder = if ($env:UNDERTONE_INSTALL) { $env:UNDERTONE_INSTALL } else { "$env:LOCALAPPDATA\undertone\bin" }
$name = "undertone-@VERSION@-x86_64-pc-windows-msvc"
$work = Join-Path ([IO.Path]::GetTempPath()) ([Guid]::NewGuid())
New-Item -ItemType Directory $work | Out-Null
try {
    $archive = Join-Path $work "$name.zip"
    Invoke-WebRequest "$base/$name.zip" -OutFile $archive
    $sums = (Invoke-WebRequest "$base/SHA256SUMS").Content
    if ($sums -is [byte[]]) { $sums = [Text.Encoding]::UTF8.GetString($sums) }
    $line = $sums -split "`n" | Where-Object { $_ -match " $([regex]::Escape("$name.zip"))$" }
    $hash = (Get-FileHash $archive -Algorithm SHA256).Hash.ToLower()
    if (-not $line -or -not $line.StartsWith($hash)) { throw "$name.zip does not match its SHA-256 sum" }
    Expand-Archive $archive $work
    New-Item -ItemType Directory -Force $folder | Out-Null
    Copy-Item "$work\$name\*.exe" $folder -Force
} finally {
    Remove-Item -Recurse -Force $work
}
Write-Host "Installed undertone @VERSION@ in $folder"
$path = [Environment]::GetEnvironmentVariable("Path", "User")
if (($path -split ";") -notcontains $folder) {
    [Environment]::SetEnvironmentVariable("Path", "$path;$folder", "User")
    Write-Host "Open a new terminal to use it"
}
& "$folder\undertone.exe" self check
