// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {IUsdc} from "../../src/gateway/IUsdc.sol";
import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

/// @title HostileUsdc
///
/// @notice A token that does what USDC does not: it keeps a part of a transfer, and calls back in the middle of one.
contract HostileUsdc is ERC20, IUsdc {
    uint256 private _fee;
    address private _trusted;
    address private _callee;
    bytes private _call;

    /// What the call in the middle of a transfer came back with.
    bool public callSucceeded;
    bytes public callResult;

    constructor() ERC20("Hostile", "HOST") {}

    function mint(address to, uint256 value) external {
        _mint(to, value);
    }

    /// Lets one spender take from everyone, to spare the tests their approvals.
    function approveAll(address spender) external {
        _trusted = spender;
    }

    function setFee(uint256 fee) external {
        _fee = fee;
    }

    /// Makes the next transfer call `callee` before it ends.
    function callOnTransfer(address callee, bytes calldata call) external {
        _callee = callee;
        _call = call;
    }

    function receiveWithAuthorization(address from, address to, uint256 value, uint256, uint256, bytes32, bytes memory)
        external
    {
        _transfer(from, to, value);
    }

    function isBlacklisted(address) external pure returns (bool) {
        return false;
    }

    function allowance(address from, address spender) public view override(ERC20, IERC20) returns (uint256) {
        return spender == _trusted ? type(uint256).max : super.allowance(from, spender);
    }

    function _update(address from, address to, uint256 value) internal override {
        super._update(from, to, value);
        if (_fee != 0 && from != address(0)) super._update(to, address(0), _fee);
        if (_callee != address(0)) {
            address callee = _callee;
            _callee = address(0);
            // solhint-disable-next-line avoid-low-level-calls
            (callSucceeded, callResult) = callee.call(_call);
        }
    }
}
