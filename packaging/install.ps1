# Installs undertone for this user:
#
#     irm @BASE_URL@/install.ps1 | iex
#
# $env:UNDERTONE_INSTALL names another folder than %LOCALAPPDATA%\undertone\bin, and
# $env:UNDERTONE_PROGRAM = "undertone-provider" installs the provider's program.

# The block keeps variables and preferences out of the session that runs the script.
& {
    $ErrorActionPreference = "Stop"
    # Windows PowerShell downloads many times slower while it shows progress.
    $ProgressPreference = "SilentlyContinue"
    $base = if ($env:UNDERTONE_BASE_URL) { $env:UNDERTONE_BASE_URL } else { "@BASE_URL@" }
    $folder = if ($env:UNDERTONE_INSTALL) { $env:UNDERTONE_INSTALL } else { "$env:LOCALAPPDATA\undertone\bin" }
    $folder = $ExecutionContext.SessionState.Path.GetUnresolvedProviderPathFromPSPath($folder)
    $program = if ($env:UNDERTONE_PROGRAM) { $env:UNDERTONE_PROGRAM } else { "undertone" }
    if ($program -notin "undertone", "undertone-provider") {
        throw "UNDERTONE_PROGRAM is $program, but must be undertone or undertone-provider"
    }
    $name = "$program-@VERSION@-x86_64-pc-windows-msvc"
    $work = Join-Path ([IO.Path]::GetTempPath()) ([Guid]::NewGuid().ToString())
    New-Item -ItemType Directory $work | Out-Null
    try {
        $archive = Join-Path $work "$name.zip"
        # Without -UseBasicParsing, Windows PowerShell parses pages with Internet Explorer.
        Invoke-WebRequest "$base/$name.zip" -OutFile $archive -UseBasicParsing
        $sums = (Invoke-WebRequest "$base/SHA256SUMS" -UseBasicParsing).Content
        if ($sums -is [byte[]]) { $sums = [Text.Encoding]::UTF8.GetString($sums) }
        $line = $sums -split "\r?\n" | Where-Object { ($_ -split "\s+", 2)[1] -eq "$name.zip" } | Select-Object -First 1
        if (-not $line) { throw "SHA256SUMS has no line for $name.zip" }
        $hash = (Get-FileHash $archive -Algorithm SHA256).Hash
        if (($line -split "\s+", 2)[0] -ne $hash) { throw "$name.zip does not match its SHA-256 sum" }
        Expand-Archive $archive $work
        New-Item -ItemType Directory -Force $folder | Out-Null
        Copy-Item "$work\$name\*.exe" $folder -Force
    } finally {
        Remove-Item -Recurse -Force $work
    }
    Write-Host "Installed $program @VERSION@ in $folder"
    # The registry has the path with its %VARIABLES%, which [Environment] would expand for good.
    $key = [Microsoft.Win32.Registry]::CurrentUser.CreateSubKey("Environment")
    $path = [string]$key.GetValue("Path", "", [Microsoft.Win32.RegistryValueOptions]::DoNotExpandEnvironmentNames)
    $folders = @($path -split ";" | Where-Object { $_ })
    $known = $folders | ForEach-Object { [Environment]::ExpandEnvironmentVariables($_).TrimEnd("\") }
    if ($known -notcontains $folder.TrimEnd("\")) {
        $key.SetValue("Path", (($folders + $folder) -join ";"), [Microsoft.Win32.RegistryValueKind]::ExpandString)
        # Removing a variable that does not exist tells other programs that variables changed.
        [Environment]::SetEnvironmentVariable("UNDERTONE_UNUSED", $null, "User")
        Write-Host "Open a new terminal to use it"
    }
    $key.Dispose()
    if ($program -eq "undertone") { & "$folder\undertone.exe" self check }
}
